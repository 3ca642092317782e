"""The engine's end of the archive's socket: against the real archive, a dead and a mad one."""

import queue
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zmq

from services.archive.archive import Archive
from services.archive.loop import ArchiveLoop
from services.archive.store import ArchiveLimits
from services.engine.archive_link import (
    ArchiveAbsent,
    ArchiveLink,
    FromArchive,
    SessionReady,
)
from services.engine.session_indexes import SessionIndexes
from services.engine.span_cache import SpanCache
from shared import endpoints, sockets
from shared.endpoints import Endpoints
from shared.matching.lookup import find
from shared.messages import (
    ArchiveToEngine,
    Attach,
    Attached,
    Bind,
    Bound,
    EngineToArchive,
    NotPublished,
    Publish,
    Published,
    Release,
    Revoked,
    Unbound,
)
from shared.session_names import join_ids, span_id_of
from shared.wire import Codec

MIB = 1 << 20
KEY = b"explicit:k"
WAIT_S = 10.0


def text(seed: int, length: int = 300) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 49_152, length).astype(np.int32)


def bind(binding: str, key: bytes = KEY, *, reset: bool = False) -> Bind:
    known = np.empty(0, np.uint64)
    return Bind(engine_id="e", binding=binding, key=key, fork=None, reset=reset, known=known)


def publish(binding: str, *texts: np.ndarray) -> Publish:
    ends = np.cumsum([0, *map(len, texts)])
    parts = [(ends[i], ends[i + 1], 3) for i in range(len(texts))]
    tokens = np.concatenate(texts) if texts else np.empty(0, np.int32)
    return Publish(binding=binding, tokens=tokens, parts=np.array(parts, np.int32).reshape(-1))


class RunningArchive:
    """The real loop in a thread; `stop` is what a killed process leaves behind."""

    def __init__(self, channels: Endpoints) -> None:
        limits = ArchiveLimits(total_bytes=64 * MIB, session_bytes=32 * MIB)
        self._loop = ArchiveLoop(channels, Archive(limits))
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._loop.run, args=(self._stop,))
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()
        self._loop.close()


class Link:
    """An `ArchiveLink` with the answers in a queue."""

    def __init__(self, channels: Endpoints) -> None:
        self._answers: queue.SimpleQueue[FromArchive] = queue.SimpleQueue()
        self._link = ArchiveLink(channels, "e", self._answers.put, cache_bytes=64 * MIB)
        self.send = self._link.send
        self.close = self._link.close

    def hear(self, kind: type) -> Any:
        answer = self._answers.get(timeout=WAIT_S)
        assert isinstance(answer, kind), answer
        return answer

    def until(self, binding: Callable[[], Bind], kind: type) -> Any:
        """Binds anew until the answer is of this kind: the archive may just be starting."""
        end_s = time.monotonic() + WAIT_S
        while True:
            message = binding()
            self.send(message)
            answer = self._answers.get(timeout=WAIT_S)
            if isinstance(answer, kind):
                return answer
            assert time.monotonic() < end_s, answer
            self.send(Release(binding=message.binding))
            time.sleep(0.01)


@pytest.fixture
def channels() -> Iterator[Endpoints]:
    with tempfile.TemporaryDirectory(prefix="ninfer-") as name:
        yield endpoints.in_directory(Path(name))


@pytest.fixture
def link(channels: Endpoints) -> Iterator[Link]:
    made = Link(channels)
    yield made
    made.close()


def counted(prefix: str) -> Callable[[], Bind]:
    numbers = iter(range(10_000))
    return lambda: bind(f"{prefix}{next(numbers)}")


def test_a_snapshot_comes_back_as_one_index_and_grows_by_what_is_new(
    channels: Endpoints, link: Link
) -> None:
    archive = RunningArchive(channels)
    try:
        ready = link.until(counted("a"), SessionReady)
        assert ready.indexes == ()
        link.send(publish(ready.binding, text(1), text(2, 40_000)))
        assert link.hear(Published).generation == 1
        link.send(bind("b"))
        ready = link.hear(SessionReady)
        assert ready.sources == 4  # the longer text has three chunks
        (first,) = ready.indexes
        assert find(text(2, 40_000)[20_000:20_064], ready.indexes, 65, min_match=64)
        link.send(publish("b", text(1), text(3)))
        link.hear(Published)
        link.send(bind("c"))
        ready = link.hear(SessionReady)
        assert len(ready.indexes) == 2
        assert ready.indexes[0] is first
        assert find(text(3)[100:164], ready.indexes, 65, min_match=64)
    finally:
        archive.stop()


def test_a_dead_archive_is_noticed_at_once_and_a_new_one_used_with_higher_generations(
    channels: Endpoints, link: Link
) -> None:
    archive = RunningArchive(channels)
    ready = link.until(counted("a"), SessionReady)
    link.send(publish(ready.binding, text(1)))
    assert link.hear(Published).generation == 1
    link.send(bind("open"))
    link.hear(SessionReady)
    archive.stop()
    end_s = time.monotonic() + WAIT_S
    link.send(publish("open"))
    while not isinstance(answer := link.hear(object), ArchiveAbsent):
        assert time.monotonic() < end_s, answer
        link.send(publish("open"))
    archive = RunningArchive(channels)
    try:
        ready = link.until(counted("b"), SessionReady)
        assert ready.sources == 0
        link.send(publish(ready.binding, text(1)))
        assert link.hear(Published).generation > 1
        link.send(publish("open"))  # of the archive before
        assert isinstance(link.hear(NotPublished), NotPublished)
    finally:
        archive.stop()


def test_a_reset_and_a_busy_session_come_through(channels: Endpoints, link: Link) -> None:
    archive = RunningArchive(channels)
    try:
        ready = link.until(counted("a"), SessionReady)
        link.send(bind("second"))
        assert link.hear(Unbound).reason == "busy"
        link.send(bind("third", reset=True))
        assert link.hear(Revoked).binding == ready.binding
        link.hear(SessionReady)
        link.send(Release(binding="third"))
        link.send(bind("fourth"))
        link.hear(SessionReady)
    finally:
        archive.stop()


class MadArchive:
    """Answers by hand."""

    def __init__(self, channels: Endpoints) -> None:
        self._context: Any = zmq.Context()
        self._socket = sockets.bind(self._context, zmq.ROUTER, channels.bind)
        self._peer = b""

    def hear(self, kind: type) -> Any:
        end_s = time.monotonic() + WAIT_S
        while time.monotonic() < end_s:
            assert self._socket.poll(WAIT_S * 1000)
            self._peer, *frames = self._socket.recv_multipart()
            message = Codec(EngineToArchive).decode(frames)
            if isinstance(message, Attach):
                self.say(Attached(archive_id="mad", total_bytes=0))
            if isinstance(message, kind):
                return message
        raise AssertionError(f"no {kind.__name__}")

    def say(self, message: ArchiveToEngine) -> None:
        self.raw(*Codec(ArchiveToEngine).encode(message))

    def raw(self, *frames: bytes) -> None:
        self._socket.send_multipart([self._peer, *frames])

    def close(self) -> None:
        self._context.destroy(linger=0)


def test_garbage_and_snapshots_that_lack_spans_bind_nothing(
    channels: Endpoints, link: Link
) -> None:
    mad = MadArchive(channels)
    try:
        mad.hear(Attach)
        mad.hear(Attach)
        link.send(bind("r"))
        mad.hear(Bind)
        for frames in ([b""], [b"\xff" * 30], [b"{}", b"x"]):
            mad.raw(*frames)
        lacking = Bound(
            binding="r",
            generation=4,
            span_ids=join_ids([b"0" * 16]),
            missing=join_ids([]),
            spans=(),
            session_bytes=1,
            total_bytes=1,
        )
        mad.say(lacking)
        mad.say(Unbound(binding="r", reason="busy", total_bytes=1))
        assert link.hear(Unbound).binding == "r"
        assert mad.hear(Attach).generation_floor == 4  # what it said of generations is believed
    finally:
        mad.close()


def test_unanswered_publications_raise_the_floor(channels: Endpoints, link: Link) -> None:
    mad = MadArchive(channels)
    try:
        mad.hear(Attach)
        mad.hear(Attach)
        for number in range(3):
            link.send(publish(f"r{number}"))
            mad.hear(Publish)
        assert mad.hear(Attach).generation_floor == 3
        mad.say(Published(binding="r1", generation=7, sources=0, session_bytes=0, total_bytes=0))
        link.hear(Published)
        assert mad.hear(Attach).generation_floor == 9
    finally:
        mad.close()


# -- what the thread keeps ---------------------------------------------------------------------


def test_the_cache_is_bounded_and_forgets_the_longest_unused() -> None:
    cache = SpanCache(4 * 250)
    spans = {span_id_of(text(seed, 100)): text(seed, 100) for seed in range(3)}
    for span_id, tokens in spans.items():
        cache.add(span_id, tokens)
    first, second, third = spans
    cache.use([first])
    assert set(cache.known()) == {first, third}
    assert cache.nbytes <= 4 * 250
    cache.use([second])
    cache.clear()
    assert cache.known() == {}


def test_indexes_hold_exactly_the_spans_of_the_snapshot() -> None:
    """Above all: nothing of an evicted span, or of the session before a reset."""
    indexes = SessionIndexes(MIB)
    spans = [text(seed, 200) for seed in range(6)]
    ids = [b"%016d" % seed for seed in range(6)]
    for chosen in ([0, 1, 2, 3], [0, 1, 2, 3, 4], [1, 2, 4], [1, 2, 4, 5], [], [0]):
        built = indexes.build(KEY, [ids[i] for i in chosen], [spans[i] for i in chosen])
        for i, span in enumerate(spans):
            found = find(span[:64], built, 65, min_match=64)
            assert (found is not None) == (i in chosen)
        assert not any(
            find(np.append(a[-8:], b[:8]), built, 5, min_match=9) for a in spans for b in spans
        )


def test_the_latest_span_wins_and_too_many_are_cut_at_the_older_end() -> None:
    same = text(1, 100)
    older, newer = np.append(same, text(2, 10)), np.append(same, text(3, 10))
    built = SessionIndexes(MIB).build(KEY, [b"a", b"b"], [older, newer])
    match = find(same[-64:], built, 5, min_match=64)
    assert match is not None
    assert built[match.source].continuation(match.position, 5).tolist() == text(3, 10)[:5].tolist()

    few = SessionIndexes(12 * 150).build(KEY, [b"a", b"b"], [older, newer])
    assert find(text(3, 10)[:5], few, 1, min_match=5) is not None
    assert find(text(2, 10)[:5], few, 1, min_match=5) is None
    assert sum(index.nbytes for index in few) <= 12 * 150


def test_indexes_of_sessions_are_bounded_together() -> None:
    indexes = SessionIndexes(12 * 1000)
    for key in range(20):
        indexes.build(b"%d" % key, [b"%16d" % key], [text(key, 300)])
    assert indexes.nbytes <= 12 * 1000
    indexes.clear()
    assert indexes.nbytes == 0
