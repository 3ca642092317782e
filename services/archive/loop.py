"""The archive's process: one loop receives, applies and answers, one message at a time."""

import threading
from collections.abc import Sequence
from typing import Any

import structlog
import zmq

from services.archive.archive import Archive
from services.archive.desk import BadMessage, Desk, ToEngine
from shared import sockets
from shared.endpoints import Endpoints
from shared.messages import (
    ArchiveToEngine,
    ArchiveToGateway,
    Attach,
    EngineToArchive,
    GatewayToArchive,
)
from shared.wire import Codec, WireError

POLL_MS = 250
# Snapshots that an engine has not taken yet; one more finds the pipe full and is dropped.
UNREAD_ANSWERS = 256


class ArchiveLoop:
    """Owns the archive and both sockets. Never waits for a peer."""

    def __init__(self, channels: Endpoints, archive: Archive) -> None:
        self._desk = Desk(archive)
        self._log = structlog.get_logger(service="archive")
        self._engine = b""  # who attached last
        self._engine_id = ""
        self._on_their_way: list[tuple[Any, ToEngine]] = []  # MessageTracker of each snapshot
        self._engine_in: Codec[EngineToArchive] = Codec(EngineToArchive)
        self._engine_out: Codec[ArchiveToEngine] = Codec(ArchiveToEngine)
        self._gateway_in: Codec[GatewayToArchive] = Codec(GatewayToArchive)
        self._gateway_out: Codec[ArchiveToGateway] = Codec(ArchiveToGateway)
        self._bound = (channels.bind, channels.sessions)
        context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._context = context
        self._bind = sockets.bind(context, zmq.ROUTER, channels.bind)
        self._bind.setsockopt(zmq.SNDHWM, UNREAD_ANSWERS)
        self._bind.setsockopt(zmq.ROUTER_MANDATORY, 1)
        self._sessions = sockets.bind(context, zmq.ROUTER, channels.sessions)
        self._poller = zmq.Poller()
        for socket in (self._bind, self._sessions):
            self._poller.register(socket, zmq.POLLIN)

    def run(self, stop: threading.Event) -> None:
        while not stop.is_set():
            self.turn(POLL_MS)

    def turn(self, block_ms: int) -> None:
        """What has arrived, in order; waits up to `block_ms` for a first message."""
        ready = dict(self._poller.poll(block_ms))
        if self._bind in ready:
            self._serve_engine()
        if self._sessions in ready:
            self._serve_gateway()
        self._collect()

    def close(self) -> None:
        self._context.destroy(linger=0)
        for endpoint in self._bound:
            sockets.remove(endpoint)

    def _serve_engine(self) -> None:
        while frames := _receive(self._bind):
            peer = bytes(frames[0])
            try:
                message = self._engine_in.decode(frames[1:])
                if isinstance(message, Attach):
                    self._meet(peer, message.engine_id)
                answers = self._desk.from_engine(message)
            except (WireError, BadMessage) as exc:
                self._log.warning("garbage", channel="bind", error=str(exc))
                continue
            for answer in answers:
                self._send(peer, answer)

    def _meet(self, peer: bytes, engine_id: str) -> None:
        self._engine = peer
        if engine_id != self._engine_id:
            self._engine_id = engine_id
            self._log.info("engine_attached", engine_id=engine_id)

    def _serve_gateway(self) -> None:
        while frames := _receive(self._sessions):
            try:
                answer, revoked = self._desk.from_gateway(self._gateway_in.decode(frames[1:]))
            except WireError as exc:
                self._log.warning("garbage", channel="sessions", error=str(exc))
                continue
            for revocation in revoked:
                self._send(self._engine, revocation)
            encoded = self._gateway_out.encode(answer)
            self._sessions.send_multipart([bytes(frames[0]), *encoded])  # drops if it is gone

    def _send(self, engine: bytes, answer: ToEngine) -> None:
        """Spans go out without a copy, so a snapshot stays pinned until ZeroMQ is done."""
        frames = [engine, *self._engine_out.encode(answer.message)]
        try:
            tracker = _send_tracked(self._bind, frames)
        except zmq.ZMQError as exc:
            if exc.errno not in (zmq.EAGAIN, zmq.EHOSTUNREACH):
                raise
            self._log.warning("answer_dropped", kind=type(answer.message).__name__)
            self._desk.undeliverable(answer)
            return
        if answer.snapshot is None:
            return
        self._on_their_way.append((tracker, answer))

    def _collect(self) -> None:
        """Unpins what has been delivered."""
        waiting = []
        for tracker, answer in self._on_their_way:
            if tracker.done:
                self._desk.delivered(answer)
            else:
                waiting.append((tracker, answer))
        self._on_their_way = waiting


def _send_tracked(socket: "zmq.Socket[bytes]", frames: "Sequence[bytes | memoryview]") -> Any:
    """Without blocking; the tracker is done when no frame is in use any more."""
    trackers = []
    for place, frame in enumerate(frames, start=1):
        more = zmq.SNDMORE if place < len(frames) else 0
        # only the first frame of a message can find the pipe full
        trackers.append(socket.send(frame, zmq.NOBLOCK | more, copy=False, track=True))
    return zmq.MessageTracker(*trackers)


def _receive(socket: "zmq.Socket[bytes]") -> Sequence[memoryview]:
    """The next message's frames without copying, or none."""
    try:
        return [frame.buffer for frame in socket.recv_multipart(zmq.NOBLOCK, copy=False)]
    except zmq.Again:
        return []
