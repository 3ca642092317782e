import numpy as np
import pytest

from shared.matching.contexts import context_order, query_bytes
from shared.matching.lookup import Match, find
from shared.matching.segment import SegmentIndex
from tests.matching.oracle import best_match, int32

MIB = 1024 * 1024


@pytest.mark.parametrize("tokens", [[], [1], [-1, -1], [1, -1, 2]])
def test_texts_without_two_tokens_in_a_row_have_no_position(tokens: list[int]) -> None:
    index = SegmentIndex.build(int32(tokens))
    assert len(index.order) == 0
    assert index.find(query_bytes([1]), 5) is None


def test_the_callers_array_is_left_alone() -> None:
    tokens = int32([1, 2, 3])
    SegmentIndex.build(tokens, {2})
    assert tokens.tolist() == [1, 2, 3]


def test_rebuilding_keeps_the_arrays_without_copying() -> None:
    built = SegmentIndex.build(int32([1, 2, 1, 3]))
    tokens, order = built.tokens.copy(), built.order.copy()
    tokens.flags.writeable = order.flags.writeable = False

    rebuilt = SegmentIndex(tokens, order)

    assert rebuilt.tokens is tokens
    assert rebuilt.order is order
    assert find([1], [rebuilt], 4) == find([1], [built], 4)


@pytest.mark.parametrize("order", [[0], [3], [-1], [1, 7]])
def test_an_order_that_points_outside_is_refused(order: list[int]) -> None:
    with pytest.raises(ValueError, match="outside"):
        SegmentIndex(int32([1, 2, 3]), int32(order))


def test_arrays_of_another_type_are_refused() -> None:
    with pytest.raises(ValueError, match="int32"):
        SegmentIndex(np.array([1, 2, 3]), int32([1]))


def test_order_is_by_context_64_deep() -> None:
    rng = np.random.default_rng(5)
    tokens = np.concatenate([rng.integers(0, 3, 40)] * 6 + [rng.integers(-1, 3, 200)])
    tokens = tokens.astype(np.int32)

    order = context_order(tokens).tolist()

    def context(position: int) -> list[int]:
        nearest_first = tokens[max(0, position - 64) : position][::-1]
        return [int(t) if t >= 0 else 2**32 for t in nearest_first]

    assert [context(p) for p in order] == sorted(context(p) for p in order)
    assert sorted(order) == [
        p for p in range(1, len(tokens)) if tokens[p - 1] >= 0 and tokens[p] >= 0
    ]


@pytest.mark.parametrize("shift", [0, 9, 16, 20])
def test_patterned_ids_are_all_found(shift: int) -> None:
    tokens = (np.arange(2000) % 997 << shift).astype(np.int32)
    index = SegmentIndex.build(tokens)
    for position in range(1000, 1900, 37):
        found = find(tokens[:position], [index], 8)
        assert found is not None
        assert found.length == 64


@pytest.mark.parametrize("top", [1, 255, 65_534, 65_535, 2**20, 2**31 - 3])
def test_ids_of_every_width_are_ordered_alike(top: int) -> None:
    rng = np.random.default_rng(top)
    tokens = np.where(rng.random(300) < 0.5, top, rng.integers(0, 2, 300)).astype(np.int32)
    index = SegmentIndex.build(tokens)
    for position in range(5, 300, 7):
        query = tokens[position - 5 : position].tolist()
        assert find(query, [index], 9) == best_match(query, [tokens.tolist()], 9)


def test_a_text_of_one_repeated_id_gives_the_newest_position_with_full_room() -> None:
    index = SegmentIndex.build(np.full(5000, 7, np.int32))
    assert find([7] * 64, [index], 65) == Match(0, 5000 - 65, 64, 65)


def test_boundaries_after_every_pair_still_give_the_newest_best() -> None:
    tokens = [1, 2, 0] * 500 + [1, 2, 2, 0] + [1, 2, 0] * 500
    found = find([1], [SegmentIndex.build(int32(tokens), {0})], 65)
    assert found == Match(0, 1501, 1, 2)


def test_old_spans_survive_480_000_random_tokens() -> None:
    rng = np.random.default_rng(11)
    old = rng.integers(0, 49_152, 2048)
    pressure = rng.integers(0, 49_152, 480_000)
    index = SegmentIndex.build(np.concatenate([old, [-1], pressure]).astype(np.int32))
    probes = range(64, 2048 - 14)
    found = [find(old[p - 64 : p], [index], 14, min_match=12) for p in probes]
    assert sum(m is not None and m.position == p for m, p in zip(found, probes, strict=True)) == (
        len(probes)
    )


def test_a_million_tokens_stay_within_36_mib() -> None:
    rng = np.random.default_rng(2)
    index = SegmentIndex.build(rng.integers(0, 49_152, MIB).astype(np.int32))
    assert index.nbytes <= 36 * MIB
