"""What is kept of a text, what goes first, and what it costs."""

import gc
import tracemalloc

import numpy as np
import pytest

from services.archive.archive import Archive, Part
from services.archive.span import CHUNK_TOKENS, ENGINE_TOKEN_BYTES, OVERLAP_TOKENS, cut
from services.archive.store import BASE_BYTES
from shared.matching.lookup import find
from shared.matching.segment import SegmentIndex
from shared.messages import SpanKind
from tests.archive.making import MIB, bound, held, make_archive, part, publish, text

KEY = b"explicit:k"
R, T, G, TOOL = SpanKind


@pytest.mark.parametrize(
    ("ids", "kept"),
    [
        ([1, 2, 3], []),
        ([1, 2, 3, 4], [[1, 2, 3, 4]]),
        ([1, 2, 3, 4, -1, 5, 6, 7, -1, 8, 9, 10, 11], [[1, 2, 3, 4], [8, 9, 10, 11]]),
        ([-1, -1, 1, 2, 3, 4, -1], [[1, 2, 3, 4]]),
        ([], []),
    ],
)
def test_boundaries_split_and_short_spans_are_dropped(
    ids: list[int], kept: list[list[int]]
) -> None:
    assert [span.tolist() for span in cut(np.array(ids, np.int32))] == kept


@pytest.mark.parametrize("length", [CHUNK_TOKENS, CHUNK_TOKENS + 1, 3 * CHUNK_TOKENS + 77])
def test_chunks_overlap_so_that_an_edge_costs_no_copy(length: int) -> None:
    tokens = text(3, length)
    chunks = list(cut(tokens))
    assert max(map(len, chunks)) <= CHUNK_TOKENS
    indexes = [SegmentIndex.build(chunk) for chunk in chunks]
    edges = range(CHUNK_TOKENS - OVERLAP_TOKENS, length - 130, CHUNK_TOKENS - OVERLAP_TOKENS)
    for edge in edges:
        for at in (edge - 64, edge, edge + 1, edge + 64):
            match = find(tokens[at : at + 64], indexes, 65, min_match=64)
            assert match is not None
            assert match.available == 65


def test_repeating_a_history_keeps_the_bytes_constant() -> None:
    archive = make_archive()
    history = [part(seed, 500, TOOL) for seed in range(20)]
    publish(archive, KEY, *history)
    before = archive.store.total_bytes
    for _ in range(25):
        publish(archive, KEY, *history)
    assert archive.store.total_bytes == before


def test_the_same_text_in_two_sessions_is_held_once_and_charged_to_both() -> None:
    archive = make_archive()
    publish(archive, b"a", part(1, 10_000))
    one = archive.store.total_bytes
    publish(archive, b"b", part(1, 10_000))
    assert archive.store.total_bytes - one < 10_000
    first, second = archive.store.sessions
    assert first.nbytes == second.nbytes > 40_000


def test_chatter_never_costs_tool_code() -> None:
    archive = make_archive(total=MIB, session=MIB)
    publish(archive, KEY, part(1, 2000, TOOL), part(2, 2000, G))
    for flood in range(60):
        publish(archive, KEY, part(100 + flood, 16_384, R))
        archive.check()
    kept = held(archive, KEY)
    assert text(1, 2000).tolist() in kept
    assert text(2, 2000).tolist() in kept


def test_within_a_session_the_lowest_kind_then_the_longest_unseen_goes_first() -> None:
    archive = make_archive(total=4 * MIB, session=2_000_000)
    for seed, kind in [(1, TOOL), (2, T), (3, R), (4, T), (5, TOOL)]:
        publish(archive, KEY, part(seed, 16_000, kind))
    gone = []
    for seed in range(10, 15):
        before = held(archive, KEY)
        publish(archive, KEY, part(seed, 16_000, TOOL))
        lost = [tokens for tokens in before if tokens not in held(archive, KEY)]
        gone += [seed for seed in range(1, 6) if text(seed, 16_000).tolist() in lost]
    assert gone == [3, 2, 4, 1]


def test_a_higher_kind_is_never_evicted_for_a_lower_one_in_any_session() -> None:
    archive = make_archive(total=1_300_000, session=1_300_000)
    publish(archive, b"a", part(1, 16_000, TOOL))
    publish(archive, b"b", *(part(seed, 16_000, TOOL) for seed in (2, 3)))
    publish(archive, b"c", *(part(seed, 16_000, G) for seed in range(4, 9)))
    assert held(archive, b"a") == [text(1, 16_000).tolist()]
    assert len(held(archive, b"b")) == 2
    archive.check()


def test_the_longest_unseen_session_pays_first() -> None:
    archive = make_archive(total=1_500_000, session=1_300_000)
    for key, seed in ((b"a", 1), (b"b", 2), (b"c", 3)):
        publish(archive, key, part(seed, 20_000))
    bound(archive, "r", b"a")
    archive.release("r")
    publish(archive, b"d", part(4, 20_000))
    publish(archive, b"d", part(5, 16_000))
    assert held(archive, b"b") == []
    assert held(archive, b"a")


def test_an_evicted_span_counts_until_its_snapshot_is_delivered() -> None:
    archive = make_archive(total=3_000_000, session=1_500_000)
    publish(archive, KEY, part(1, 50_000))
    snapshot = archive.bind("r", KEY)
    assert not isinstance(snapshot, str)
    archive.delete_all()
    assert archive.store.total_bytes > BASE_BYTES + 1_000_000
    archive.check()
    archive.unpin(snapshot)
    assert archive.store.total_bytes == BASE_BYTES


def test_at_most_so_many_entries_and_the_weakest_gives_way() -> None:
    archive = make_archive()
    publish(archive, KEY, *(part(seed, 8, T) for seed in range(1024)))
    publish(archive, KEY, part(5000, 8, R))  # too weak to displace any
    assert text(5000, 8).tolist() not in held(archive, KEY)
    publish(archive, KEY, part(5001, 8, TOOL))
    kept = held(archive, KEY)
    assert len(kept) == 1024
    assert text(5001, 8).tolist() in kept
    assert text(0, 8).tolist() not in kept


@pytest.mark.parametrize("length", [4, 60, 3000])
def test_what_is_charged_covers_what_is_really_used(length: int) -> None:
    gc.collect()
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        archive = Archive(make_archive(total=512 * MIB, session=64 * MIB).store.limits)
        for key in range(6):
            parts = [Part(text(1000 * key + i, length), SpanKind(i % 4)) for i in range(800)]
            publish(archive, b"%d" % key, *parts)
            del parts
        gc.collect()
        used = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    engine = ENGINE_TOKEN_BYTES * sum(len(e.span.tokens) for s in archive.store.sessions for e in s)
    assert engine
    assert used <= archive.store.total_bytes - engine <= 1.5 * used + 2 * BASE_BYTES


def test_at_most_24_bytes_a_token() -> None:
    archive = make_archive()
    publish(archive, KEY, *(part(seed, 200) for seed in range(500)))
    assert archive.store.total_bytes / (500 * 200) < 24
