"""What the adaptive drafter asks of an index beyond its best hit, against comparing everything."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shared.matching.contexts import FEW, ledger_query, query_bytes
from shared.matching.growing import GrowingIndex
from shared.matching.hit import Matches
from shared.matching.lookup import Source
from shared.matching.nearest import MOST_NEAR
from shared.matching.segment import SegmentIndex
from tests.matching.oracle import int32, mapped, match_length, room

BOUNDARY_ID = 0
texts = st.lists(st.integers(0, 3), min_size=2, max_size=90)
queries = st.lists(st.integers(1, 3), min_size=1, max_size=80)


def segment(tokens: list[int]) -> Source:
    return SegmentIndex.build(int32(tokens), {BOUNDARY_ID})


def growing(tokens: list[int]) -> Source:
    index = GrowingIndex({BOUNDARY_ID})
    index.append(tokens)
    return index


def forgetful(tokens: list[int]) -> Source:
    """The same positions, behind older ones that were forgotten."""
    index = GrowingIndex({BOUNDARY_ID}, capacity=2 * len(tokens))
    index.append([BOUNDARY_ID] * 2 * len(tokens))
    index.append(tokens)
    return index


kinds = pytest.mark.parametrize("make", [segment, growing])


@kinds
@settings(max_examples=150, deadline=None)
@given(texts, queries)
def test_the_places_of_the_longest_match_are_all_found(make, text, query) -> None:  # type: ignore[no-untyped-def]
    held = mapped(text, {BOUNDARY_ID})
    lengths = {p: match_length(held, p, query) for p in range(1, len(held)) if room(held, p) > 0}
    most = max(lengths.values(), default=0)

    found = make(text).matches(query_bytes(query))

    if most == 0:
        assert found is None
    else:
        assert found.length == most
        assert sorted(found.positions.tolist()) == [p for p, n in lengths.items() if n == most]


@kinds
@settings(max_examples=100, deadline=None)
@given(texts, queries, st.data())
def test_one_place_is_judged_like_any(make, text, query, data) -> None:  # type: ignore[no-untyped-def]
    held = mapped(text, {BOUNDARY_ID})
    position = data.draw(st.integers(1, len(text) - 1))
    source = make(text)

    assert source.match_length(position, query_bytes(query)) == match_length(held, position, query)
    assert source.available(position, 65) == min(room(held, position), 65)
    assert source.token_at(position) == held[position]


@kinds
@settings(max_examples=100, deadline=None)
@given(texts, st.integers(-1, 3), st.data())
def test_places_go_on_alike_if_the_same_token_stands_at_each(make, text, token, data) -> None:  # type: ignore[no-untyped-def]
    held = mapped(text, {BOUNDARY_ID})
    places = st.integers(1, len(text) - 1)
    positions = data.draw(st.lists(places, min_size=1, max_size=3 * FEW))
    same = [p for p in range(1, len(text)) if held[p] == token] * 2

    source = make(text)

    assert source.go_on_alike(int32(positions), token) == all(held[p] == token for p in positions)
    assert source.go_on_alike(int32(same), token)
    if same and len(set(held[1:])) > 1:
        other = next(p for p in range(1, len(text)) if held[p] != token)
        assert not source.go_on_alike(int32([*same, other]), token)


@kinds
@settings(max_examples=200, deadline=None)
@given(texts, st.integers(-5, 95), st.integers(0, 40), st.integers(0, 40), st.data())
def test_near_lists_the_closest_places_behind_the_same_tokens(  # type: ignore[no-untyped-def]
    make, text, middle, behind, ahead, data
) -> None:
    held = mapped(text, {BOUNDARY_ID})
    query = data.draw(st.lists(st.integers(1, 3), min_size=1, max_size=3))
    window = range(max(middle - behind, 1), min(middle + ahead, len(text)))
    standing = [p for p in window if held[p] >= 0 and match_length(held, p, query) == len(query)]

    found = make(text).near(middle, behind, ahead, query_bytes(query))

    assert found == sorted(standing, key=lambda p: abs(p - middle))[:MOST_NEAR]


@kinds
def test_near_is_not_misled_by_bytes_of_two_tokens_that_look_like_one(make) -> None:  # type: ignore[no-untyped-def]
    # Reversed, the ids read 00 00 07 00 | 00 00 00 07: the bytes of 7 also stand across both.
    source = make([5, 7, 7 << 8, 7 << 16, 7, 9])
    assert source.near(3, 10, 10, query_bytes([7])) == [2, 5]


@kinds
@settings(max_examples=100, deadline=None)
@given(texts, st.integers(1, 30), st.data())
def test_the_context_of_a_place_is_what_stands_before_it(make, text, count, data) -> None:  # type: ignore[no-untyped-def]
    held = mapped(text, {BOUNDARY_ID})
    positions = data.draw(st.lists(st.integers(1, len(text)), min_size=1, max_size=5))

    contexts = make(text).contexts(positions, count)

    for position, context in zip(positions, contexts, strict=True):
        nearest_first = held[max(0, position - count) : position][::-1]
        assert np.frombuffer(context, ">i4").tolist() == nearest_first


@given(st.sets(st.integers(0, 10_000), min_size=1, max_size=200), st.integers(1, 30))
def test_the_newest_places_come_newest_first(places, count) -> None:  # type: ignore[no-untyped-def]
    found = Matches(1, int32(list(places)))
    assert found.newest == max(places)
    assert found.newest_of(count) == sorted(places, reverse=True)[:count]


@settings(max_examples=100, deadline=None)
@given(texts, queries)
def test_positions_keep_their_numbers_when_older_ones_are_forgotten(text, query) -> None:  # type: ignore[no-untyped-def]
    plain, late = growing(text), forgetful(text)
    shift = 2 * len(text)
    found, later = (s.matches(query_bytes(query)) for s in (plain, late))
    if found is None:
        assert later is None
        return
    assert later is not None
    assert sorted(later.positions - shift) == sorted(found.positions)
    for position in found.positions.tolist():
        assert late.available(position + shift, 65) == plain.available(position, 65)
        assert late.token_at(position + shift) == plain.token_at(position)
        (context,), (moved,) = plain.contexts([position], 9), late.contexts([position + shift], 9)
        assert bytes(moved).startswith(context)
        around = plain.near(position, 20, 20, query_bytes(query)[:4])
        assert late.near(position + shift, 20, 20, query_bytes(query)[:4]) == [
            place + shift for place in around
        ]
    token = plain.token_at(int(found.positions[0]))
    assert late.go_on_alike(later.positions, token) == plain.go_on_alike(found.positions, token)
    assert late.match_length(1, query_bytes(query)) == 0
    assert late.available(1, 65) == 0


@given(st.lists(st.integers(0, 2**31 - 1), max_size=80))
def test_a_ledgers_query_is_that_of_any_ids(ids: list[int]) -> None:
    assert ledger_query(int32(ids)) == query_bytes(ids)


def test_a_loop_is_available_as_far_as_asked() -> None:
    index = growing([1, 2, 3, 1, 2, 3])
    assert index.available(3, 65) == 3
    assert index.available(3, 65, matched=3) == 65
    assert index.available(3, 65, matched=2) == 3


@pytest.mark.parametrize("make", [segment, growing])
@pytest.mark.parametrize("matched", [3, 10, 64])
def test_a_text_of_one_repeated_id_gives_a_place_with_room_among_its_newest(make, matched) -> None:  # type: ignore[no-untyped-def]
    source = make([7] * 5000)
    found = source.matches(query_bytes([7] * matched))
    position, available = source.roomiest(found, 65)
    assert available == 65
    assert position >= 5000 - 65


def test_places_with_equal_contexts_stand_in_the_order_of_the_text() -> None:
    rng = np.random.default_rng(2)
    block = rng.integers(1, 50, 80)
    index = SegmentIndex.build(np.concatenate([block, block, block, [1]]).astype(np.int32))
    found = index.matches(query_bytes(block))
    assert found is not None
    assert found.positions.tolist() == [80, 160, 240]
