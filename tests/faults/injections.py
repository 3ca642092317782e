"""What goes wrong, on purpose. Each injection returns when the server ought to serve again."""

import asyncio
import os
import random
import signal
import socket
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import zmq

from shared import endpoints
from tests.e2e.conftest import Server
from tests.faults.clients import Clients

SERVICES = ("engine", "indexer", "archive", "gateway")
RECOVERY_S = 60.0
PEERS = {
    "generate": zmq.DEALER,
    "build": zmq.PUSH,
    "indexes": zmq.PUSH,
    "bind": zmq.DEALER,
    "sessions": zmq.DEALER,
    "supervisor": zmq.PUSH,
}
TAGS = ("Generate", "Cancel", "Hello", "BuildIndex", "IndexReady", "Bind", "Attach", "Ready")


@dataclass
class Injections:
    server: Server
    clients: Clients
    sockets: Path
    rng: random.Random
    made: Counter[str] = field(default_factory=Counter)
    recovered_s: dict[str, list[float]] = field(default_factory=dict)  # of the killed services

    async def inject(self, kind: str) -> None:
        """`kind` is the name of a method, or name:service."""
        name, _, service = kind.partition(":")
        self.made[name] += 1
        act: Callable[..., Awaitable[None]] = getattr(self, name)
        await (act(service) if service else act())

    # -- processes -------------------------------------------------------------------------------

    async def kill(self, service: str | None = None) -> None:
        service = service or self.rng.choice(SERVICES)
        self.made[f"kill {service}"] += 1
        old = self.server.child(service)
        if service == "gateway":
            self.clients.gateway_changes += 1
        killed_s = time.monotonic()
        os.kill(old, signal.SIGKILL)
        await self._until(lambda: self._has_restarted(service, old))
        await self._until(self.server.all_up)
        self.recovered_s.setdefault(service, []).append(time.monotonic() - killed_s)
        if service == "gateway":
            self.clients.gateway_changes += 1

    async def stop_briefly(self) -> None:
        """A process that hangs for a moment, and goes on."""
        await self._stop(self.rng.choice(SERVICES), self.rng.random() * 0.5)

    async def hang_engine(self) -> None:
        """Beyond the silence after which the gateway gives its requests up."""
        await self._stop("engine", 11.0)

    async def hang_archive(self) -> None:
        """Beyond the silence after which the engine goes on without it."""
        await self._stop("archive", 2.5)

    async def _stop(self, service: str, for_s: float) -> None:
        self.made[f"stop {service}"] += 1
        process = self.server.child(service)
        os.kill(process, signal.SIGSTOP)
        await asyncio.sleep(for_s)  # how long the fault lasts
        os.kill(process, signal.SIGCONT)
        await self._until(self.server.all_up)

    def _has_restarted(self, service: str, old: int) -> bool:
        try:
            return self.server.child(service) != old
        except AssertionError:
            return False

    async def _until(self, condition: Callable[[], Any]) -> None:
        async with asyncio.timeout(RECOVERY_S):
            while not await asyncio.to_thread(condition):
                await asyncio.sleep(0.05)

    # -- messages --------------------------------------------------------------------------------

    async def garbage(self) -> None:
        """Frames that are no message, on one of the sockets, from a peer that nobody knows."""
        channel = self.rng.choice(tuple(PEERS))
        context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        peer = context.socket(PEERS[channel])
        peer.setsockopt(zmq.LINGER, 500)
        peer.setsockopt(zmq.SNDTIMEO, 2000)
        peer.connect(getattr(endpoints.in_directory(self.sockets), channel))
        for _ in range(self.rng.randrange(1, 20)):
            await asyncio.to_thread(peer.send_multipart, self._frames())
        await asyncio.to_thread(peer.close)
        await asyncio.to_thread(context.term)

    def _frames(self) -> list[bytes]:
        header = self.rng.choice(
            (
                self.rng.randbytes(self.rng.randrange(200)),
                msgspec.msgpack.encode({"type": self.rng.choice(TAGS)}),
                msgspec.msgpack.encode({"type": self.rng.choice(TAGS), "request_id": 7}),
                msgspec.msgpack.encode([[]] * 50),
            )
        )
        return [header, *(self.rng.randbytes(40) for _ in range(self.rng.randrange(3)))]

    async def raw_bytes(self) -> None:
        """Bytes that are not even ZeroMQ's, on one of the sockets."""
        channel = self.rng.choice(tuple(PEERS))
        path = getattr(endpoints.in_directory(self.sockets), channel).removeprefix("ipc://")
        with socket.socket(socket.AF_UNIX) as raw:
            raw.settimeout(2.0)
            raw.connect(path)
            raw.sendall(self.rng.randbytes(self.rng.randrange(1, 500)))

    # -- HTTP ------------------------------------------------------------------------------------

    async def bad_http(self) -> None:
        with socket.create_connection(("127.0.0.1", self.server.port), timeout=5.0) as raw:
            whole = (
                b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99\r\n\r\n{"
            )
            raw.sendall(self.rng.choice((whole, self.rng.randbytes(300), whole[:30])))

    async def full_queue(self) -> None:
        await self.clients.burst(20, self.rng)

    async def unread(self) -> None:
        """A stream that nobody reads, dropped after a while."""
        body = b'{"messages":[{"role":"user","content":"hi"}],"max_tokens":400,"stream":true}'
        head = (
            b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\n"
            b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body)
        )
        with socket.socket() as raw:
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            raw.settimeout(5.0)
            raw.connect(("127.0.0.1", self.server.port))
            raw.sendall(head + body)
            await asyncio.sleep(self.rng.random() * 0.2)  # how long the fault lasts


# of a hundred; the long hangs are chosen by their tests
WEIGHTS = {
    "kill": 6,
    "stop_briefly": 18,
    "garbage": 26,
    "raw_bytes": 14,
    "bad_http": 14,
    "full_queue": 8,
    "unread": 14,
}
