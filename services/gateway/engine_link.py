"""The gateway's end of the engine's socket."""

import asyncio
import contextlib
import time
from collections.abc import Callable
from typing import assert_never

import structlog
import zmq
from zmq.utils.monitor import parse_monitor_message

from shared import sockets
from shared.errors import EngineDead
from shared.messages import (
    Cancel,
    EngineReady,
    EngineStatus,
    EngineToGateway,
    Failed,
    Finished,
    GatewayToEngine,
    Hello,
    OutputTokens,
)
from shared.wire import Codec, WireError

SILENT_S = 10.0  # the engine's pulse comes each second, also during a long pass
TICK_S = 0.5

Reply = OutputTokens | Finished | Failed | EngineDead


class EngineLink:
    """Registers a queue for each request, then sends; fails every queue when the engine goes.

    Sending never waits, so nothing can be cancelled between a registration and its message.
    """

    def __init__(
        self,
        endpoint: str,
        on_start: Callable[[EngineReady], None],
        *,
        silent_s: float = SILENT_S,
    ) -> None:
        self.ready: EngineReady | None = None
        self.status: EngineStatus | None = None
        self.starts = 0  # of engines, since this gateway's own
        self.output_tokens = 0  # that came, of all requests
        self.output_rounds = 0  # in how many messages
        self.output_copied = 0  # accepted drafts among them
        self._on_start = on_start  # called once for each engine that starts
        self._silent_s = silent_s
        self._instance_id: str | None = None
        self._queues: dict[str, asyncio.Queue[Reply]] = {}
        self._log = structlog.get_logger(service="gateway")
        self._out: Codec[GatewayToEngine] = Codec(GatewayToEngine)
        self._in: Codec[EngineToGateway] = Codec(EngineToGateway)
        self._heard_s = time.monotonic()
        self._greeted_s = self._heard_s
        self._wake = asyncio.Event()
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._socket = sockets.connect(self._context, zmq.DEALER, endpoint)
        self._monitor = self._socket.get_monitor_socket(
            zmq.EVENT_HANDSHAKE_SUCCEEDED | zmq.EVENT_DISCONNECTED
        )

    def register(self, request_id: str) -> "asyncio.Queue[Reply]":
        queue: asyncio.Queue[Reply] = asyncio.Queue()
        self._queues[request_id] = queue
        return queue

    def forget(self, request_id: str) -> None:
        self._queues.pop(request_id, None)

    def send(self, message: GatewayToEngine) -> None:
        """Raises EngineDead: there is no engine to send to."""
        try:
            self._socket.send_multipart(self._out.encode(message), zmq.NOBLOCK)
        except zmq.Again as exc:
            raise EngineDead("the engine is not there; it restarts by itself, try again") from exc
        finally:
            # sending may swallow the descriptor's edge that announces a received message
            self._wake.set()

    async def run(self) -> None:
        """Receives until cancelled."""
        loop = asyncio.get_running_loop()
        descriptors = [s.getsockopt(zmq.FD) for s in (self._socket, self._monitor)]
        for descriptor in descriptors:
            loop.add_reader(descriptor, self._wake.set)
        try:
            while True:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(TICK_S):
                        await self._wake.wait()
                self._wake.clear()
                self._receive()
                self._watch()
                self._listen_for_silence()
        finally:
            for descriptor in descriptors:
                loop.remove_reader(descriptor)

    def abandon_all(self, error: EngineDead) -> None:
        """Cancels every open request and fails it here, at once."""
        for request_id, queue in self._queues.items():
            self.send_if_there(Cancel(request_id=request_id))
            queue.put_nowait(error)

    def close(self) -> None:
        self._socket.disable_monitor()
        self._context.destroy(linger=200)

    def _receive(self) -> None:
        while self._socket.getsockopt(zmq.EVENTS) & zmq.POLLIN:
            frames = self._socket.recv_multipart(zmq.NOBLOCK, copy=False)
            self._heard_s = time.monotonic()
            try:
                message = self._in.decode([frame.buffer for frame in frames])
            except WireError as exc:
                self._log.warning("garbage", channel="generate", error=str(exc))
                continue
            self._handle(message)

    def _handle(self, message: EngineToGateway) -> None:
        match message:
            case EngineReady():
                self._greeted(message)
            case EngineStatus():
                self.status = message
            case OutputTokens() | Finished() | Failed():
                if isinstance(message, OutputTokens):
                    self.output_tokens += len(message.token_ids)
                    self.output_rounds += 1
                    self.output_copied += message.copied
                queue = self._queues.get(message.request_id)
                if queue is not None:
                    queue.put_nowait(message)
                elif isinstance(message, OutputTokens):
                    self.send_if_there(Cancel(request_id=message.request_id))
            case _:
                assert_never(message)

    def _greeted(self, ready: EngineReady) -> None:
        restarted = self._instance_id not in (None, ready.instance_id)
        if self.ready is not None and restarted:
            self._lose("the engine was restarted")
        self.ready = ready
        if self._instance_id != ready.instance_id:
            self._instance_id = ready.instance_id
            self.starts += 1
            self._on_start(ready)

    def _watch(self) -> None:
        while self._monitor.getsockopt(zmq.EVENTS) & zmq.POLLIN:
            event = parse_monitor_message(self._monitor.recv_multipart(zmq.NOBLOCK))
            if event["event"] == zmq.EVENT_HANDSHAKE_SUCCEEDED:
                self._heard_s = time.monotonic()
                self._greet()
            elif event["event"] == zmq.EVENT_DISCONNECTED:
                self._lose("the engine died")

    def _listen_for_silence(self) -> None:
        now_s = time.monotonic()
        if self.ready is None:
            # the pipe may open a moment after the handshake: greets again at each tick
            if now_s - self._greeted_s >= TICK_S:
                self._greet()
        elif now_s - self._heard_s > self._silent_s:
            self._lose(f"the engine has been silent for {self._silent_s:.0f} s")

    def _greet(self) -> None:
        self._greeted_s = time.monotonic()
        self.send_if_there(Hello())

    def send_if_there(self, message: GatewayToEngine) -> None:
        with contextlib.suppress(EngineDead):
            self.send(message)

    def _lose(self, why: str) -> None:
        if self.ready is not None:
            self._log.error("engine_lost", why=why, open_requests=len(self._queues))
        self.ready = None
        self.status = None
        for queue in self._queues.values():
            queue.put_nowait(EngineDead(f"{why}; it restarts by itself, try again"))
