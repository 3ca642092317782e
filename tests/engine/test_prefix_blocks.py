"""The host tier's index against a dictionary of prefixes, under any order of finds and saves."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from services.engine.prefix_blocks import BLOCK_TOKENS, PrefixBlocks


def text(blocks: list[int], extra: int = 0) -> np.ndarray:
    """Blocks of equal content are equal; `extra` tokens follow that fill no block."""
    parts = [np.full(BLOCK_TOKENS, block, np.int32) for block in blocks]
    return np.concatenate([*parts, np.zeros(extra, np.int32)]).astype(np.int32)


def test_only_whole_blocks_are_kept_and_shared_by_equal_prefixes() -> None:
    index = PrefixBlocks(8)
    assert [new.ordinal for new in index.insert(text([1, 2, 3], extra=9), "")] == [0, 1, 2]
    assert [new.ordinal for new in index.insert(text([1, 2, 4]), "")] == [2]
    assert len(index) == 4
    first, second = index.find(text([1, 2, 3]), ""), index.find(text([1, 2, 4, 5]), "")
    assert (first[:2], len(second)) == (second[:2], 3)
    assert index.find(text([2, 3]), "") == []
    assert index.find(text([1, 2, 3]), "salt") == []


def test_the_least_recently_used_end_of_a_chain_goes_first() -> None:
    index = PrefixBlocks(4)
    index.insert(text([1, 2]), "")
    index.insert(text([5, 6]), "")
    index.find(text([1, 2]), "")
    index.insert(text([8]), "")
    assert [len(index.find(text(chain), "")) for chain in ([1, 2], [5, 6], [8])] == [2, 1, 1]
    index.check()


def test_a_text_longer_than_the_pool_keeps_its_beginning() -> None:
    index = PrefixBlocks(2)
    assert len(index.insert(text([1, 2, 3, 4]), "")) == 2
    assert len(index.find(text([1, 2, 3, 4]), "")) == 2
    assert PrefixBlocks(0).insert(text([1]), "") == []


chains = st.lists(st.integers(0, 2), max_size=6)


@settings(max_examples=200)
@given(
    capacity=st.integers(1, 8),
    steps=st.lists(st.tuples(st.booleans(), chains, st.sampled_from(["", "s"])), max_size=30),
)
def test_a_find_never_returns_another_text(
    capacity: int, steps: list[tuple[bool, list[int], str]]
) -> None:
    index = PrefixBlocks(capacity)
    content: dict[int, tuple[str, tuple[int, ...]]] = {}  # block -> whose prefix was written there
    for saves, chain, salt in steps:
        if saves:
            for block, ordinal in index.insert(text(chain), salt):
                content[block] = (salt, tuple(chain[: ordinal + 1]))
        else:
            for ordinal, block in enumerate(index.find(text(chain), salt)):
                assert content[block] == (salt, tuple(chain[: ordinal + 1]))
        index.check()
        assert len(index) <= capacity
