"""The gateway's end of the engine's socket."""

import asyncio
import contextlib
import time

import structlog
import zmq
import zmq.asyncio
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
    """Registers a queue for each request, then sends; fails every queue when the engine goes."""

    def __init__(self, endpoint: str) -> None:
        self.ready: EngineReady | None = None
        self.status: EngineStatus | None = None
        self.on_ready: list[asyncio.Event] = []
        self._queues: dict[str, asyncio.Queue[Reply]] = {}
        self._log = structlog.get_logger(service="gateway")
        self._out: Codec[GatewayToEngine] = Codec(GatewayToEngine)
        self._in: Codec[EngineToGateway] = Codec(EngineToGateway)
        self._heard_s = time.monotonic()
        self._context = zmq.asyncio.Context()
        self._socket = sockets.connect(self._context, zmq.DEALER, endpoint)
        self._monitor = self._socket.get_monitor_socket(
            zmq.EVENT_HANDSHAKE_SUCCEEDED | zmq.EVENT_DISCONNECTED
        )

    @property
    def open_requests(self) -> int:
        return len(self._queues)

    def register(self, request_id: str) -> "asyncio.Queue[Reply]":
        queue: asyncio.Queue[Reply] = asyncio.Queue()
        self._queues[request_id] = queue
        return queue

    def forget(self, request_id: str) -> None:
        self._queues.pop(request_id, None)

    async def send(self, message: GatewayToEngine) -> None:
        """Raises EngineDead: there is no engine to send to."""
        try:
            await self._socket.send_multipart(self._out.encode(message), zmq.NOBLOCK)
        except zmq.Again as exc:
            raise EngineDead("the engine is not there; it restarts by itself, try again") from exc

    async def run(self) -> None:
        """Receives until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._receive())
            tasks.create_task(self._watch())
            tasks.create_task(self._listen_for_silence())

    def close(self) -> None:
        self._context.destroy(linger=200)

    async def _receive(self) -> None:
        while True:
            frames = await self._socket.recv_multipart(copy=False)
            self._heard_s = time.monotonic()
            try:
                message = self._in.decode([frame.buffer for frame in frames])
            except WireError as exc:
                self._log.warning("garbage", channel="generate", error=str(exc))
                continue
            await self._handle(message)

    async def _handle(self, message: EngineToGateway) -> None:
        match message:
            case EngineReady():
                if self.ready and self.ready.instance_id != message.instance_id:
                    self._lose("the engine was restarted")
                self.ready = message
                for event in self.on_ready:
                    event.set()
            case EngineStatus():
                self.status = message
            case OutputTokens() | Finished() | Failed():
                queue = self._queues.get(message.request_id)
                if queue is not None:
                    queue.put_nowait(message)
                elif isinstance(message, OutputTokens):
                    with contextlib.suppress(EngineDead):
                        await self.send(Cancel(request_id=message.request_id))

    async def _watch(self) -> None:
        while True:
            event = parse_monitor_message(await self._monitor.recv_multipart())
            if event["event"] == zmq.EVENT_HANDSHAKE_SUCCEEDED:
                self._heard_s = time.monotonic()
                await self._greet()
            elif event["event"] == zmq.EVENT_DISCONNECTED:
                self._lose("the engine died")

    async def _listen_for_silence(self) -> None:
        while True:
            await asyncio.sleep(TICK_S)
            if self.ready and time.monotonic() - self._heard_s > SILENT_S:
                self._lose(f"the engine has been silent for {SILENT_S:.0f} s")
            elif not self.ready:
                await self._greet()

    async def _greet(self) -> None:
        # the pipe may open a moment after the handshake; the next tick tries again
        with contextlib.suppress(EngineDead):
            await self.send(Hello())

    def _lose(self, why: str) -> None:
        if self.ready is not None:
            self._log.error("engine_lost", why=why, open_requests=len(self._queues))
        self.ready = None
        for queue in self._queues.values():
            queue.put_nowait(EngineDead(f"{why}; it restarts by itself, try again"))
