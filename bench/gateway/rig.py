"""A real gateway process in front of a scripted engine, and clients that note when events come.

Engine and clients run in the benchmark's own process: one clock, and the gateway has a core of its
own. What that process is late by itself counts against the gateway.
"""

import asyncio
import contextlib
import json
import os
import re
import socket
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from shared.endpoints import in_directory
from shared.messages import OutputTokens
from shared.tokenizer import Tokenizer
from tests.scripted_engine import Script, ScriptedEngine, Turn

START_S = 30.0
TICKS_A_SECOND = os.sysconf("SC_CLK_TCK")
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_request_id = re.compile(rb"(?i)x-request-id: ([^\r]+)")
_content = re.compile(rb'"content":"(x+)"')


@dataclass
class Rig:
    """What a measurement talks to. `pid` is the gateway's."""

    port: int
    pid: int
    engine: ScriptedEngine
    tokenizer: Tokenizer

    def cpu_s(self) -> float:
        """User and system time of the gateway so far."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / TICKS_A_SECOND

    def resident_bytes(self) -> int:
        return int(Path(f"/proc/{self.pid}/statm").read_text().split()[1]) * PAGE_BYTES

    async def open(self, body: dict[str, Any], path: str = "/v1/chat/completions") -> "Client":
        loop = asyncio.get_running_loop()
        _, client = await loop.create_connection(Client, "127.0.0.1", self.port)
        raw = json.dumps(body).encode()
        head = (
            f"POST {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(raw)}\r\n\r\n"
        )
        client.transport.write(head.encode() + raw)
        return client


@dataclass
class Client(asyncio.Protocol):
    """One stream. `arrived_s`: when each token's text came, if its text is one `x`."""

    arrived_s: list[float] = field(default_factory=list)
    received: int = 0  # bytes
    tail: bytes = b""

    def __post_init__(self) -> None:
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.request_id = ""

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        now_s = time.monotonic()
        if not self.received:
            self.request_id = _request_id.findall(data)[0].decode()
        self.received += len(data)
        data = self.tail + data
        end = data.rfind(b"\n\n")
        self.tail = data[end + 2 :] if end >= 0 else data
        for found in _content.finditer(data, 0, max(end, 0)):
            self.arrived_s += [now_s] * len(found[1])

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.ended.done():
            self.ended.set_result(None)


@contextlib.asynccontextmanager
async def rig(model: Path, script: Script, *flags: str, **engine: Any) -> AsyncIterator[Rig]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with tempfile.TemporaryDirectory(prefix="ninfer-bench-") as folder:
        channels = in_directory(Path(folder) / "sockets")
        argv = [f"--model={model}", f"--sockets={folder}/sockets", f"--port={port}", *flags]
        with (Path(folder) / "stderr.txt").open("wb") as stderr:
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "services.gateway", *argv, "--log-level=error", stderr=stderr
            )
        try:
            async with ScriptedEngine(channels, script, **engine) as scripted:
                await _until_healthy(port)
                yield Rig(port, process.pid, scripted, Tokenizer.load(model))
        finally:
            process.terminate()
            await process.wait()


async def _until_healthy(port: int) -> None:
    async with asyncio.timeout(START_S):
        while True:
            with contextlib.suppress(OSError):
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.write(b"GET /health HTTP/1.0\r\nHost: localhost\r\n\r\n")
                status = await reader.read(12)
                writer.close()
                if status.endswith(b"200"):
                    return
            await asyncio.sleep(0.05)


async def paced(turn: Turn, tokens: list[int], rounds: int, period_s: float) -> list[float]:
    """The same round again and again, at fixed times; when each was due."""
    message = OutputTokens(
        request_id=turn.generate.request_id, token_ids=np.array(tokens, dtype=np.int32), copied=0
    )
    frames = turn.engine.prepare(turn.gateway, message)
    due_s = []
    next_s = time.monotonic()
    for _ in range(rounds):
        next_s += period_s
        await asyncio.sleep(max(0.0, next_s - time.monotonic()))
        due_s.append(next_s)
        turn.engine.send_now(frames)
    turn.sent += rounds * len(tokens)
    await turn.finish("length")
    return due_s
