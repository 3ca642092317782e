import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shared.matching.contexts import query_bytes
from shared.matching.growing import GrowingIndex
from shared.matching.lookup import Match, Source, continuation, find
from shared.matching.segment import SegmentIndex
from tests.matching.oracle import best_match, expected_tokens, int32, mapped

BOUNDARY_ID = 0  # a special id, in texts and in queries
small_texts = st.lists(st.integers(0, 3), max_size=60)
queries = st.lists(st.integers(0, 3), min_size=1, max_size=80)
# Few symbols give ties and long matches; blocks give repeats longer than the 64 that count.
block_texts = st.lists(
    st.sampled_from([[1, 2, 3], [1, 2], [0], [5] * 70, list(range(10, 45))]), max_size=8
).map(lambda blocks: [token for block in blocks for token in block])


def segment(tokens: list[int]) -> SegmentIndex:
    return SegmentIndex.build(int32(tokens), {BOUNDARY_ID})


def growing(tokens: list[int]) -> GrowingIndex:
    index = GrowingIndex({BOUNDARY_ID})
    index.append(tokens)
    return index


def only(source: Source, query: list[int], limit: int = 8, **options: int) -> Match | None:
    return find(query, [source], limit, **options)


@settings(max_examples=400, deadline=None)
@given(st.lists(small_texts, min_size=1, max_size=3), small_texts, queries, st.integers(1, 65))
def test_each_lookup_finds_what_comparing_everything_finds(
    texts: list[list[int]], output: list[int], query: list[int], limit: int
) -> None:
    sources = [*map(segment, texts), growing(output)]
    mapped_texts = [mapped(text, {BOUNDARY_ID}) for text in (*texts, output)]

    assert find(query, sources, limit) == best_match(query, mapped_texts, limit)


@settings(max_examples=150, deadline=None)
@given(block_texts, block_texts, st.integers(1, 65), st.integers(1, 64))
def test_repeats_beyond_the_depth_are_found_with_the_newest_of_equals(
    text: list[int], output: list[int], limit: int, min_match: int
) -> None:
    query = (text + output)[-64:] or [1]
    texts = [mapped(t, {BOUNDARY_ID}) for t in (text, output)]

    found = find(query, [segment(text), growing(output)], limit, min_match=min_match)

    assert found == best_match(query, texts, limit, min_match=min_match)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.integers(0, 2), min_size=1, max_size=90), st.integers(1, 65))
def test_looping_output_wraps_as_the_contract_says(output: list[int], limit: int) -> None:
    index = growing(output)
    text = mapped(output, {BOUNDARY_ID})

    found = find(output, [index], limit, wrap=True)

    assert found == best_match(output, [text], limit, wrap={0})
    if found is not None:
        assert continuation(found, [index]).tolist() == expected_tokens(text, found)


@settings(max_examples=150, deadline=None)
@given(small_texts, queries, st.integers(1, 65))
def test_a_continuation_is_what_followed_the_match(
    text: list[int], query: list[int], limit: int
) -> None:
    for source in (segment(text), growing(text)):
        found = only(source, query, limit)
        if found is not None:
            followed = text[found.position : found.position + found.available]
            assert continuation(found, [source]).tolist() == followed


def test_a_longer_match_beats_a_longer_continuation() -> None:
    source = segment([1, 2, 3, 9, 0, 7, 2, 3, 5, 5, 5, 5])
    assert only(source, [1, 2, 3]) == Match(0, 3, 3, 1)


def test_at_equal_match_the_longer_continuation_wins_over_the_newer() -> None:
    source = segment([1, 2, 4, 4, 4, 0, 1, 2, 4])
    assert only(source, [1, 2]) == Match(0, 2, 2, 3)


def test_continuations_that_reach_the_limit_are_equal_and_the_newer_wins() -> None:
    source = segment([1, 2, 4, 4, 4, 0, 1, 2, 4])
    assert only(source, [1, 2], limit=1) == Match(0, 8, 2, 1)


def test_the_later_source_wins_a_tie() -> None:
    sources = [segment([1, 2, 3]), segment([1, 2, 4])]
    found = find([1, 2], sources, 1)
    assert found is not None
    assert continuation(found, sources).tolist() == [4]


def test_the_earlier_source_wins_with_a_longer_match() -> None:
    sources = [segment([5, 1, 2, 3]), segment([1, 2, 4])]
    assert find([5, 1, 2], sources, 1) == Match(0, 3, 3, 1)


def test_no_window_spans_two_sources() -> None:
    found = find([1, 2, 3, 4], [segment([9, 1, 2]), segment([3, 4, 7])], 5)
    assert found == Match(1, 2, 2, 1)


def test_a_match_stops_at_a_boundary() -> None:
    assert only(segment([1, 2, BOUNDARY_ID, 3, 4]), [1, 2, BOUNDARY_ID, 3]) == Match(0, 4, 1, 1)


def test_a_continuation_stops_at_a_boundary() -> None:
    found = only(segment([1, 2, 3, BOUNDARY_ID, 4]), [1, 2])
    assert found == Match(0, 2, 2, 1)


def test_a_match_right_before_a_boundary_has_nothing_to_continue_with() -> None:
    assert only(segment([1, 2, BOUNDARY_ID, 3]), [1, 2]) is None


def test_a_match_at_the_very_end_has_nothing_to_continue_with() -> None:
    assert only(segment([1, 2, 3]), [2, 3]) is None


def test_a_special_id_in_the_query_matches_no_boundary() -> None:
    assert only(segment([BOUNDARY_ID, 1]), [BOUNDARY_ID]) is None


def test_a_negative_id_in_the_query_matches_no_boundary() -> None:
    assert only(segment([5, BOUNDARY_ID, 1, 2]), [5, -1, 1]) == Match(0, 3, 1, 1)


def test_matches_below_the_threshold_are_dropped() -> None:
    source = segment([1, 2, 3, 4])
    assert only(source, [9, 2, 3], min_match=3) is None
    assert only(source, [1, 2, 3], min_match=3) == Match(0, 3, 3, 1)


def test_a_query_shorter_than_the_threshold_never_matches() -> None:
    assert only(segment([1, 2, 3, 4]), [1, 2, 3], min_match=4) is None


def test_only_the_last_64_ids_of_a_query_count() -> None:
    text = list(range(1, 101))
    assert only(segment(text), text[:90]) == Match(0, 90, 64, 8)


@pytest.mark.parametrize("query", [[], [-1]])
def test_an_empty_query_finds_nothing(query: list[int]) -> None:
    assert only(segment([1, 2, 3]), query) is None


def test_without_sources_nothing_is_found() -> None:
    assert find([1, 2], [], 5) is None


def test_a_limit_of_zero_finds_nothing() -> None:
    assert only(segment([1, 2, 3]), [1, 2], limit=0) is None


def test_queries_may_be_arrays_of_any_integer_type() -> None:
    assert query_bytes(np.array([1, 2], np.int64)) == query_bytes([1, 2])


def test_a_loop_goes_on_past_the_end_of_the_text() -> None:
    output = growing([7, 1, 2, 3, 1, 2, 3])
    found = find([7, 1, 2, 3, 1, 2, 3], [output], 7, wrap=True)
    assert found is not None
    assert continuation(found, [output]).tolist() == [1, 2, 3, 1, 2, 3, 1]


def test_a_loop_does_not_wrap_unless_asked() -> None:
    output = growing([7, 1, 2, 3, 1, 2, 3])
    assert find([1, 2, 3], [output], 7) == Match(0, 4, 3, 3)


def test_a_match_shorter_than_its_distance_to_the_end_is_no_loop() -> None:
    output = growing([1, 8, 9, 1])
    assert find([9, 1], [output], 9, wrap=True) == Match(0, 1, 1, 3)


def test_immutable_texts_do_not_wrap() -> None:
    assert find([4, 4], [segment([4, 4, 4])], 9, wrap=True) == Match(0, 2, 2, 1)
