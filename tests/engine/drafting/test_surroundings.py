"""Surroundings are compared in one pass; the oracle here compares token by token."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.engine.drafting.surroundings import TOKENS, Surroundings
from shared.matching.contexts import query_bytes

ids = st.one_of(st.integers(0, 12), st.sampled_from([1023, 1024, 2047, 49_151, 2**20]))
texts = st.lists(st.lists(ids | st.just(-1), min_size=1, max_size=TOKENS), min_size=1, max_size=9)


def context(tokens: list[int]) -> bytes:
    return np.array(tokens[::-1], ">i4").tobytes()


@settings(max_examples=200, deadline=None)
@given(st.lists(st.lists(ids, min_size=1, max_size=40), min_size=1, max_size=4), texts)
def test_each_of_the_last_tokens_counts_where_it_stands_anywhere(queries, places) -> None:  # type: ignore[no-untyped-def]
    surroundings = Surroundings()
    for query in queries:  # nothing of one is left when the next is compared
        counts = surroundings.shared(query_bytes(query), [context(place) for place in places])
        assert counts == [sum(t in place for t in query[-TOKENS:]) for place in places]


@pytest.mark.parametrize("greatest", [3, 1022, 1023, 1024, 150_000])
def test_a_boundary_is_no_token_however_long_the_table_is(greatest: int) -> None:
    counts = Surroundings().shared(
        query_bytes([greatest, 0, greatest]), [context([-1]), context([greatest, -1]), context([0])]
    )
    assert counts == [0, 2, 1]
