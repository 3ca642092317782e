import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shared.matching.growing import RUN_POSITIONS, TAIL_POSITIONS, GrowingIndex
from shared.matching.lookup import Match, continuation, find
from shared.matching.segment import SegmentIndex
from tests.matching.oracle import best_match, mapped

MIB = 1024 * 1024


def grown(tokens: np.ndarray, *, step: int = 7) -> GrowingIndex:
    index = GrowingIndex({0})
    for start in range(0, len(tokens), step):
        index.append(tokens[start : start + step])
    return index


def text_of(count: int, *, vocabulary: int, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    pieces = [rng.integers(0, vocabulary, 50) for _ in range(60)]
    picked = [pieces[i] for i in rng.integers(0, 60, count // 50)]
    return np.concatenate(picked).astype(np.int32)


def test_the_text_being_extended_never_matches_itself() -> None:
    index = GrowingIndex()
    index.append([1, 2, 3])
    assert find([1, 2, 3], [index], 5) is None


def test_a_position_is_found_as_soon_as_one_token_follows_it() -> None:
    index = GrowingIndex()
    index.append([1, 2, 3])
    index.append([4])
    assert find([1, 2, 3], [index], 5) == Match(0, 3, 3, 1)


@pytest.mark.parametrize("step", [1, 3, 64, 100_000])
def test_the_size_of_appends_makes_no_difference(step: int) -> None:
    tokens = text_of(3000, vocabulary=40, seed=1)
    whole, pieces = grown(tokens, step=len(tokens)), grown(tokens, step=step)
    for position in range(100, 3000, 97):
        query = tokens[:position]
        assert find(query, [pieces], 65) == find(query, [whole], 65)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.lists(st.integers(0, 3), max_size=70), max_size=8), st.data())
def test_searches_between_appends_make_no_difference(pieces, data) -> None:  # type: ignore[no-untyped-def]
    searched, unsearched = GrowingIndex({0}), GrowingIndex({0})
    tokens: list[int] = []
    for piece in pieces:
        tokens += piece
        searched.append(piece)
        unsearched.append(piece)
        if data.draw(st.booleans()):
            query = [token for token in tokens if token][-64:]
            expected = best_match(query, [mapped(tokens, {0})], 65)
            assert find(query, [searched], 65) == expected
    for end in range(1, len(tokens) + 1):
        query = tokens[:end]
        if 0 not in query[-64:]:
            assert find(query, [unsearched], 65) == find(query, [searched], 65)


def test_sealed_runs_answer_like_one_immutable_index() -> None:
    tokens = text_of(5 * TAIL_POSITIONS, vocabulary=3000, seed=3)
    index, reference = grown(tokens, step=11), SegmentIndex.build(tokens, {0})
    for position in range(70, len(tokens), 211):
        query = tokens[position - 70 : position]
        assert find(query, [index], 65) == find(query, [reference], 65)


def test_matches_and_copies_cross_the_edges_of_runs() -> None:
    rng = np.random.default_rng(4)
    tokens = rng.integers(1, 49_152, 2 * TAIL_POSITIONS + 500).astype(np.int32)
    index = grown(tokens, step=64)
    for edge in (TAIL_POSITIONS, 2 * TAIL_POSITIONS):
        for position in range(edge - 70, edge + 70):
            found = find(tokens[:position], [index], 65)
            assert found == Match(0, position, 64, 65)
            copied = continuation(found, [index])
            assert copied.tolist() == tokens[position : position + 65].tolist()


def test_a_found_copy_survives_the_next_appends() -> None:
    index = GrowingIndex()
    index.append([1, 2, 3])
    copied = continuation(find([1], [index], 2) or Match(0, 0, 0, 0), [index])
    index.append(range(5000))
    assert copied.tolist() == [2, 3]


def test_old_spans_survive_480_000_random_tokens() -> None:
    rng = np.random.default_rng(8)
    old = rng.integers(1, 49_152, 2048)
    index = GrowingIndex()
    index.append(old)
    index.append([-1])
    index.append(rng.integers(1, 49_152, 480_000))
    probes = range(64, 2048 - 14)
    found = [find(old[p - 64 : p], [index], 14, min_match=12) for p in probes]
    assert all(m == Match(0, p, 64, 14) for m, p in zip(found, probes, strict=True))


def test_runs_merge_up_to_their_cap() -> None:
    rng = np.random.default_rng(6)
    count = RUN_POSITIONS + TAIL_POSITIONS
    index = grown(rng.integers(1, 49_152, count).astype(np.int32), step=4096)
    assert index.nbytes <= 24 * count
    assert len(index) == count


def test_a_full_index_forgets_its_older_half_and_finds_the_newer() -> None:
    rng = np.random.default_rng(9)
    tokens = rng.integers(1, 49_152, 10_000)
    index = GrowingIndex(capacity=4096)
    index.append(tokens)

    assert len(index) == 10_000
    found = find(tokens[:9500], [index], 65)
    assert found == Match(0, 9500, 64, 65)
    assert continuation(found, [index]).tolist() == tokens[9500:9565].tolist()
    assert find(tokens[:1000], [index], 65, min_match=4) is None


def test_a_full_index_stays_within_36_mib_a_million_tokens() -> None:
    capacity = 16_384
    index = GrowingIndex(capacity=capacity)
    rng = np.random.default_rng(10)
    for _ in range(20):
        index.append(rng.integers(1, 49_152, 2000))
        assert index.nbytes <= 36 * capacity


def test_forgetting_keeps_boundaries() -> None:
    index = GrowingIndex({0}, capacity=16)
    index.append([*range(1, 13), 0, 5, 6, 7, 8])
    assert find([11, 12], [index], 9) is None
    assert find([5, 6], [index], 9) == Match(0, 15, 2, 2)
