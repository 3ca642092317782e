"""The indexer's process: one task receives, one builds in a worker thread and sends."""

import asyncio
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import assert_never

import msgspec
import structlog
import zmq
import zmq.asyncio

from services.indexer.backlog import Backlog, Build
from services.indexer.builder import Builder
from shared import sockets
from shared.endpoints import Endpoints
from shared.messages import BuildIndex, DropIndex, GatewayToIndexer, IndexReady
from shared.wire import Codec, WireError

# More requests than a gateway admits by default; at 4 bytes a token the waiting prompts stay small.
BACKLOG_BUILDS = 64
# The socket finds an engine that has just started within half a second (see shared/sockets.py).
ENGINE_WAIT_S = 2.0
RETRY_S = 0.02
KNOWN_TAGS = frozenset({BuildIndex.__name__, DropIndex.__name__})


class _Claim(msgspec.Struct):
    """What an undecodable message says it is."""

    type: str


class Indexer:
    """Receives `GatewayToIndexer`, sends `IndexReady`. Nobody ever waits for it."""

    def __init__(
        self, channels: Endpoints, builder: Builder, *, backlog_builds: int = BACKLOG_BUILDS
    ) -> None:
        self._log = structlog.get_logger(service="indexer")
        self._builder = builder
        self._backlog = Backlog(backlog_builds)
        self._received: Codec[GatewayToIndexer] = Codec(GatewayToIndexer)
        self._sent: Codec[IndexReady] = Codec(IndexReady)
        self._claims = msgspec.msgpack.Decoder(_Claim)
        self._garbage_kinds: set[str] = set()
        self._worker = ThreadPoolExecutor(max_workers=1, thread_name_prefix="build")
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        asynchronous = zmq.asyncio.Context(self._context)
        self._socket_file = Path(channels.build.removeprefix("ipc://"))
        self._inbox = sockets.bind(asynchronous, zmq.PULL, channels.build)
        self._outbox = sockets.connect(self._context, zmq.PUSH, channels.indexes)

    @property
    def waiting(self) -> tuple[str, ...]:
        """The requests whose builds wait, oldest first."""
        return self._backlog.waiting

    async def run(self, stop: asyncio.Event) -> None:
        """Serves until `stop` is set; a failure of either task ends the process."""
        tasks = [
            asyncio.create_task(work) for work in (self._receive(), self._build(), stop.wait())
        ]
        done, pending = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in pending:
            task.cancel()
        await asyncio.gather(*pending, return_exceptions=True)
        for task in done:
            task.result()

    def close(self) -> None:
        """Waits for the worker, which stops at the next source, and removes the socket's file."""
        self._backlog.drop_all()
        self._worker.shutdown(wait=True, cancel_futures=True)
        self._inbox.close()
        self._outbox.close()
        self._context.destroy(linger=0)
        self._socket_file.unlink(missing_ok=True)  # ZeroMQ leaves it behind

    async def _receive(self) -> None:
        while True:
            frames = await self._inbox.recv_multipart(copy=False)
            try:
                message = self._received.decode([frame.buffer for frame in frames])
            except WireError as exc:
                self._report_garbage(frames[0].bytes, exc)
                continue
            self._handle(message)

    def _handle(self, message: GatewayToIndexer) -> None:
        match message:
            case BuildIndex():
                dropped = self._backlog.add(message)
                if dropped is not None:
                    self._log.warning("build_dropped", request_id=dropped, reason="backlog_full")
            case DropIndex(request_id=request_id):
                self._backlog.drop(request_id)
            case _:
                assert_never(message)

    def _report_garbage(self, header: bytes, error: WireError) -> None:
        """Once per kind of message, so that a broken peer cannot flood the log."""
        try:
            claimed = self._claims.decode(header).type
        except msgspec.DecodeError:
            claimed = ""
        kind = claimed if claimed in KNOWN_TAGS else "unknown"
        if kind not in self._garbage_kinds:
            self._garbage_kinds.add(kind)
            self._log.warning("garbage", channel="build", kind=kind, error=str(error))

    async def _build(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            build = await self._backlog.next()
            parts = self._builder.build(build.message, build.cancelled)
            while ready := await loop.run_in_executor(self._worker, self._attempt, parts, build):
                await self._deliver(ready, build)

    def _attempt(self, parts: Iterator[IndexReady], build: Build) -> IndexReady | None:
        """The next part, in the worker thread."""
        try:
            return next(parts, None)
        except Exception:  # noqa: BLE001 - one odd request must not cost all others their copies
            self._log.exception("build_failed", request_id=build.message.request_id)
            return None

    async def _deliver(self, ready: IndexReady, build: Build) -> None:
        """Gives up when the request has ended or no engine took the index in time."""
        give_up_s = time.monotonic() + ENGINE_WAIT_S
        while not build.cancelled.is_set():
            try:
                self._outbox.send_multipart(self._sent.encode(ready), zmq.NOBLOCK, copy=False)
            except zmq.Again:
                if time.monotonic() > give_up_s:
                    self._log.warning(
                        "index_dropped", request_id=ready.request_id, reason="engine_absent_or_full"
                    )
                    return
                await asyncio.sleep(RETRY_S)
                continue
            self._log.debug("index_sent", request_id=ready.request_id, build_s=ready.build_s)
            return
