"""The engine's end of the archive's socket, in a thread of its own.

The archive is an accelerator: nothing here waits for it, and whatever it does, sends or fails to
send, the loop gets at most fewer copies. The thread owns what the connection needs to be right:
which bindings are open, the highest generation that may be in use, and the cached spans. Indexes
are built in a second thread, so that a large session delays no publication.
"""

import queue
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import assert_never

import msgspec
import numpy as np
import structlog
import zmq

from services.engine.session_indexes import SessionIndexes
from services.engine.span_cache import SpanCache
from shared import sockets
from shared.endpoints import Endpoints
from shared.matching.segment import SegmentIndex
from shared.messages import (
    ArchiveToEngine,
    Attach,
    Attached,
    Bind,
    Bound,
    EngineToArchive,
    Forget,
    NotPublished,
    Publish,
    Published,
    Release,
    Revoked,
    Unbound,
)
from shared.session_names import join_ids, split_ids
from shared.wire import Codec, WireError

ATTACH_S = 0.5
ATTACH_SOON_S = 0.02  # while nobody has answered yet
SILENT_S = 2.0
BELL = "inproc://archive-bell"


@dataclass(frozen=True)
class SessionReady:
    """A binding's sources, ready to be searched."""

    binding: str
    indexes: tuple[SegmentIndex, ...]  # oldest first
    sources: int
    session_bytes: int
    total_bytes: int


@dataclass(frozen=True)
class ArchiveAbsent:
    """What was sent for this binding reached nobody."""

    binding: str


FromArchive = SessionReady | Unbound | Revoked | Published | NotPublished | ArchiveAbsent


class ArchiveLink:
    """`send` from the loop; answers go to `deliver`, which must be safe to call from a thread."""

    def __init__(
        self,
        channels: Endpoints,
        engine_id: str,
        deliver: Callable[[FromArchive], None],
        *,
        cache_bytes: int,
    ) -> None:
        self._engine_id = engine_id
        self._deliver = deliver
        self._log = structlog.get_logger(service="engine")
        self._outbound: queue.SimpleQueue[EngineToArchive] = queue.SimpleQueue()
        self._closing = threading.Event()
        # -- the thread's own -------------------------------------------------------------------
        self._spans = SpanCache(cache_bytes // 4)  # a span's tokens against their index
        self._indexes = SessionIndexes(cache_bytes - cache_bytes // 4)
        self._open: dict[str, _Binding] = {}
        self._publishing: set[str] = set()  # sent, not yet answered
        self._generation = 0  # the highest that was heard of
        self._archive_id: str | None = None
        self._heard_s = 0.0
        self._attached_s = 0.0
        self._out: Codec[EngineToArchive] = Codec(EngineToArchive)
        self._in: Codec[ArchiveToEngine] = Codec(ArchiveToEngine)
        self._builder = ThreadPoolExecutor(1, thread_name_prefix="session-index")
        context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._context = context
        self._socket = sockets.connect(context, zmq.DEALER, channels.bind)
        self._doorbell = sockets.bind(context, zmq.PULL, BELL)
        self._bell = sockets.connect(context, zmq.PUSH, BELL)
        self._thread = threading.Thread(target=self._serve, name="archive-link", daemon=True)
        self._thread.start()

    # -- the loop's side -----------------------------------------------------------------------

    def send(self, message: Bind | Publish | Release) -> None:
        """Never waits. A Bind's `known` is filled in here."""
        self._outbound.put(message)
        self._bell.send(b"")

    def close(self) -> None:
        self._closing.set()
        self._bell.send(b"")
        self._thread.join(timeout=2.0)
        self._builder.shutdown(wait=True, cancel_futures=True)
        self._context.destroy(linger=0)

    # -- the thread's side -----------------------------------------------------------------------

    def _serve(self) -> None:
        poller = zmq.Poller()
        for socket in (self._socket, self._doorbell):
            poller.register(socket, zmq.POLLIN)
        while not self._closing.is_set():
            self._attach()
            pause_s = ATTACH_S if self._is_there() else ATTACH_SOON_S
            ready = dict(poller.poll(int(pause_s * 1000)))
            if self._socket in ready:
                self._take()
            if self._doorbell in ready:
                self._doorbell.recv()
            self._give()

    def _is_there(self) -> bool:
        return self._archive_id is not None and time.monotonic() - self._heard_s < SILENT_S

    def _attach(self) -> None:
        now_s = time.monotonic()
        wait_s = ATTACH_S if self._is_there() else ATTACH_SOON_S
        if now_s - self._attached_s < wait_s:
            return
        self._attached_s = now_s
        # an unanswered publication may have raised the count once
        floor = self._generation + len(self._publishing)
        bindings = tuple(self._open)
        attach = Attach(engine_id=self._engine_id, generation_floor=floor, bindings=bindings)
        self._try(attach)

    def _give(self) -> None:
        while True:
            try:
                message = self._outbound.get_nowait()
            except queue.Empty:
                return
            match message:
                case Bind(binding=binding):
                    self._bind(message)
                case Publish(binding=binding):
                    self._open.pop(binding, None)
                    self._publishing.add(binding)
                    if not self._is_there() or not self._try(message):
                        self._publishing.discard(binding)
                        self._deliver(ArchiveAbsent(binding))
                case Release(binding=binding):
                    self._open.pop(binding, None)
                    self._try(message)  # if it is lost, the next Attach says so

    def _bind(self, message: Bind) -> None:
        known = self._spans.known()
        self._open[message.binding] = _Binding(message.key, known)
        message = msgspec.structs.replace(message, known=join_ids(known))
        if not self._is_there() or not self._try(message):
            del self._open[message.binding]
            self._deliver(ArchiveAbsent(message.binding))

    def _try(self, message: EngineToArchive) -> bool:
        try:
            self._socket.send_multipart(self._out.encode(message), zmq.NOBLOCK)
        except zmq.Again:
            self._heard_s = 0.0  # there is nobody, or nobody who reads
            return False
        return True

    def _take(self) -> None:
        while True:
            try:
                frames = self._socket.recv_multipart(zmq.NOBLOCK, copy=False)
            except zmq.Again:
                return
            try:
                message = self._in.decode([frame.buffer for frame in frames])
            except WireError as exc:
                self._log.warning("garbage", channel="bind", error=str(exc))
                continue
            self._handle(message)

    def _handle(self, message: ArchiveToEngine) -> None:
        match message:
            case Attached():
                self._met(message.archive_id)
            case Bound():
                self._generation = max(self._generation, message.generation)
                self._take_spans(message)
            case Unbound() | Revoked():
                self._open.pop(message.binding, None)
                self._deliver(message)
            case Published():
                self._publishing.discard(message.binding)
                self._generation = max(self._generation, message.generation)
                self._deliver(message)
            case NotPublished():
                self._publishing.discard(message.binding)
                self._deliver(message)
            case Forget():
                self._spans.clear()
                self._builder.submit(self._indexes.clear)
            case _:
                assert_never(message)

    def _met(self, archive_id: str) -> None:
        self._heard_s = time.monotonic()
        if archive_id == self._archive_id:
            return
        if self._archive_id is not None:
            # what the last one left unanswered may have had a generation each
            self._generation += len(self._publishing)
            self._publishing.clear()
            self._attached_s = 0.0
        self._archive_id = archive_id
        self._log.info("archive_attached", archive_id=archive_id)

    def _take_spans(self, bound: Bound) -> None:
        binding = self._open.get(bound.binding)
        if binding is None:  # it ended meanwhile
            return
        there = binding.known
        for span_id, tokens in zip(split_ids(bound.missing), bound.spans, strict=False):
            there[span_id] = self._spans.add(span_id, tokens)
        span_ids = split_ids(bound.span_ids)
        binding.known = {}  # what it announced is of no more use
        self._spans.use(span_ids)
        if not all(span_id in there for span_id in span_ids):
            self._log.warning("garbage", channel="bind", error="a snapshot lacks spans")
            return
        spans = [there[span_id] for span_id in span_ids]
        self._builder.submit(self._build, bound, binding.key, span_ids, spans)

    def _build(
        self, bound: Bound, key: bytes, span_ids: list[bytes], spans: list[np.ndarray]
    ) -> None:
        """In the builder's thread."""
        try:
            indexes = self._indexes.build(key, span_ids, spans)
        except Exception:  # noqa: BLE001 one odd session must not cost the others their copies
            self._log.exception("session_index_failed", binding=bound.binding)
            return
        self._deliver(
            SessionReady(
                binding=bound.binding,
                indexes=indexes,
                sources=len(span_ids),
                session_bytes=bound.session_bytes,
                total_bytes=bound.total_bytes,
            )
        )


@dataclass
class _Binding:
    key: bytes
    known: dict[bytes, np.ndarray]  # the spans that were announced, kept until Bound comes
