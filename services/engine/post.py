"""The engine's sockets, in a thread of their own: the loop sees only typed queues.

The thread answers `Hello` and sends the engine's pulse by itself, so a gateway hears from the
engine also while a long pass runs. A gateway to which nothing can be routed is gone: the loop is
told and cancels its requests.
"""

import queue
import threading
import time
from dataclasses import dataclass

import structlog
import zmq

from services.engine.archive_link import FromArchive
from shared import sockets
from shared.endpoints import Endpoints
from shared.messages import (
    Cancel,
    EngineReady,
    EngineStatus,
    EngineToGateway,
    GatewayToEngine,
    Generate,
    Hello,
    IndexReady,
    Stop,
)
from shared.wire import Codec, WireError

PULSE_S = 1.0


@dataclass(frozen=True)
class FromGateway:
    gateway: bytes
    message: Generate | Cancel | Stop


@dataclass(frozen=True)
class GatewayGone:
    gateway: bytes


@dataclass(frozen=True)
class ArchiveAnswer:
    message: FromArchive


Inbound = FromGateway | GatewayGone | IndexReady | ArchiveAnswer


class Post:
    """Typed queues in front of the sockets; `status` is set by the loop, read by the thread."""

    def __init__(self, endpoints: Endpoints, ready: EngineReady, status: EngineStatus) -> None:
        self.status = status
        self._ready = ready
        self._inbound: queue.SimpleQueue[Inbound] = queue.SimpleQueue()
        self._outbound: queue.SimpleQueue[tuple[bytes, EngineToGateway]] = queue.SimpleQueue()
        self._gateways: set[bytes] = set()
        self._log = structlog.get_logger(service="engine")
        self._closing = threading.Event()
        context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._context = context
        self._bound = (endpoints.generate, endpoints.indexes)
        self._router = sockets.bind(context, zmq.ROUTER, endpoints.generate)
        self._router.setsockopt(zmq.ROUTER_MANDATORY, 1)
        # What a gateway is owed is bounded by its requests' output limits, and must not be lost.
        self._router.setsockopt(zmq.SNDHWM, 0)
        self._indexes = sockets.bind(context, zmq.PULL, endpoints.indexes)
        self._doorbell = sockets.bind(context, zmq.PULL, "inproc://doorbell")
        self._bell = sockets.connect(context, zmq.PUSH, "inproc://doorbell")
        self._thread = threading.Thread(target=self._serve, name="post", daemon=True)
        self._thread.start()

    # -- the loop's side -----------------------------------------------------------------------

    def receive(self, block_s: float) -> list[Inbound]:
        """What has arrived; waits up to `block_s` for a first message."""
        arrived = []
        try:
            arrived.append(
                self._inbound.get(timeout=block_s) if block_s else self._inbound.get_nowait()
            )
            while True:
                arrived.append(self._inbound.get_nowait())
        except queue.Empty:
            return arrived

    def deliver(self, message: FromArchive) -> None:
        """For the archive's thread: the loop receives it like everything else."""
        self._inbound.put(ArchiveAnswer(message))

    def send(self, gateway: bytes, message: EngineToGateway) -> None:
        self._outbound.put((gateway, message))

    def flush(self) -> None:
        """Wakes the thread for what was sent since the last flush."""
        if not self._outbound.empty():
            self._bell.send(b"")

    def close(self) -> None:
        self._closing.set()
        self._bell.send(b"")
        self._thread.join(timeout=2.0)
        self._context.destroy(linger=500)
        for endpoint in self._bound:
            sockets.remove(endpoint)

    # -- the thread's side -----------------------------------------------------------------------

    def _serve(self) -> None:
        from_gateways: Codec[GatewayToEngine] = Codec(GatewayToEngine)
        from_indexer: Codec[IndexReady] = Codec(IndexReady)
        to_gateways: Codec[EngineToGateway] = Codec(EngineToGateway)
        poller = zmq.Poller()
        for socket in (self._router, self._indexes, self._doorbell):
            poller.register(socket, zmq.POLLIN)
        next_pulse_s = time.monotonic()
        while not self._closing.is_set():
            wait_s = max(0.0, next_pulse_s - time.monotonic())
            ready = dict(poller.poll(int(wait_s * 1000) + 1))
            if self._router in ready:
                self._take_requests(from_gateways)
            if self._indexes in ready:
                self._take_indexes(from_indexer)
            if self._doorbell in ready:
                self._doorbell.recv()
            self._deliver(to_gateways)
            if time.monotonic() >= next_pulse_s:
                next_pulse_s = time.monotonic() + PULSE_S
                for gateway in tuple(self._gateways):
                    self._route(gateway, self.status, to_gateways)
        self._deliver(to_gateways)

    def _take_requests(self, codec: Codec[GatewayToEngine]) -> None:
        while frames := _receive(self._router):
            gateway = bytes(frames[0])
            try:
                message = codec.decode(frames[1:])
            except WireError as exc:
                self._log.warning("garbage", channel="generate", error=str(exc))
                continue
            if isinstance(message, Hello):
                self._gateways.add(gateway)
                self._outbound.put((gateway, self._ready))
            else:
                self._inbound.put(FromGateway(gateway, message))

    def _take_indexes(self, codec: Codec[IndexReady]) -> None:
        while frames := _receive(self._indexes):
            try:
                self._inbound.put(codec.decode(frames))
            except WireError as exc:
                self._log.warning("garbage", channel="indexes", error=str(exc))

    def _deliver(self, codec: Codec[EngineToGateway]) -> None:
        while True:
            try:
                gateway, message = self._outbound.get_nowait()
            except queue.Empty:
                return
            self._route(gateway, message, codec)

    def _route(
        self, gateway: bytes, message: EngineToGateway, codec: Codec[EngineToGateway]
    ) -> None:
        try:
            self._router.send_multipart([gateway, *codec.encode(message)], copy=True)
        except zmq.ZMQError as exc:
            if exc.errno != zmq.EHOSTUNREACH:
                raise
            if gateway in self._gateways:
                self._gateways.discard(gateway)
                self._log.info("gateway_gone")
                self._inbound.put(GatewayGone(gateway))


def _receive(socket: zmq.Socket[bytes]) -> list[memoryview]:
    """The next message's frames without copying, or none."""
    try:
        return [frame.buffer for frame in socket.recv_multipart(zmq.NOBLOCK, copy=False)]
    except zmq.Again:
        return []
