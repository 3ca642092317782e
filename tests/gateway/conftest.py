"""A gateway over real sockets and real HTTP, in front of a scripted engine."""

import asyncio
import contextlib
import json
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest
import zmq
import zmq.asyncio
from aiohttp import web

from services.gateway.config import GatewayConfig
from services.gateway.log_lines import AnyLine
from services.gateway.loop import Gateway, running
from shared import sockets
from shared.endpoints import Endpoints, in_directory
from shared.messages import GatewayToIndexer
from shared.tokenizer import Tokenizer
from shared.wire import Codec
from tests.model_folders import TEMPLATES, with_template
from tests.scripted_engine import Script, ScriptedEngine

MESSAGES = [{"role": "user", "content": "hi"}]


@dataclass
class Served:
    """What a test talks to, and what it looks behind."""

    url: str
    http: aiohttp.ClientSession
    engine: ScriptedEngine
    indexed: list[GatewayToIndexer]
    log_path: Path
    tokenizer: Tokenizer
    gateway: Gateway

    async def chat(self, **fields: Any) -> tuple[int, dict[str, Any]]:
        """The status and body of one completion."""
        body = {"model": "tiny", "messages": MESSAGES} | fields
        async with self.http.post(f"{self.url}/v1/chat/completions", json=body) as answer:
            return answer.status, await answer.json()

    async def events(self, **fields: Any) -> list[Any]:
        """All events of one stream, parsed; the last of a whole one is "[DONE]"."""
        body = {"model": "tiny", "messages": MESSAGES, "stream": True} | fields
        async with self.http.post(f"{self.url}/v1/chat/completions", json=body) as answer:
            assert answer.status == 200, await answer.text()
            text = (await answer.read()).decode()
        assert text.endswith("\n\n")
        blocks = text.removesuffix("\n\n").split("\n\n")
        assert all(b.startswith("data: ") and "\n" not in b for b in blocks)
        found = [block.removeprefix("data: ") for block in blocks]
        return [e if e == "[DONE]" else json.loads(e) for e in found]

    def log_lines(self, event: str | None = None) -> list[dict[str, Any]]:
        lines = [json.loads(line) for line in self.log_path.read_text().splitlines()]
        for line in lines:  # every field is documented in its type
            assert msgspec.to_builtins(msgspec.convert(line, AnyLine)) == line
        return [line for line in lines if event in (None, line["event"])]

    async def wait_for_log(self, event: str, count: int = 1) -> dict[str, Any]:
        await self.engine.wait_for(lambda: len(self.log_lines(event)) >= count)
        return self.log_lines(event)[count - 1]

    async def wait_for_health(self, status: int, timeout_s: float = 5.0) -> None:
        async with asyncio.timeout(timeout_s):
            while True:
                async with self.http.get(f"{self.url}/health") as answer:
                    if answer.status == status:
                        return
                await asyncio.sleep(0.02)


def text_of(events: list[Any]) -> str:
    """The content that a stream gave."""
    choices = [c for e in events if e != "[DONE]" for c in e.get("choices", [])]
    return "".join(choice["delta"].get("content") or "" for choice in choices)


Serve = Callable[..., "contextlib.AbstractAsyncContextManager[Served]"]


@pytest.fixture(scope="session")
def tokenizer(tiny_model: Path) -> Tokenizer:
    return Tokenizer.load(tiny_model)


@pytest.fixture(scope="session")
def tool_models(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Folders whose templates show tools, by the form of their calls."""
    root = tmp_path_factory.mktemp("templates")
    return {
        name: with_template(tiny_model, root / name, template)
        for name, template in TEMPLATES.items()
    }


@pytest.fixture
def config(tiny_model: Path, short_folder: Path) -> GatewayConfig:
    return GatewayConfig(
        model=tiny_model,
        sockets=short_folder / "sockets",
        model_id="tiny",
        drain_s=0.3,
        request_log_jsonl=short_folder / "requests.jsonl",
    )


@pytest.fixture
def short_folder() -> Iterator[Path]:
    """Unix socket paths are limited to about 100 bytes, which pytest's own folders may exceed."""
    with tempfile.TemporaryDirectory(prefix="ninfer-test-") as name:
        yield Path(name)


@pytest.fixture
def serve(config: GatewayConfig, tokenizer: Tokenizer) -> Serve:
    @contextlib.asynccontextmanager
    async def start(
        script: Script,
        *,
        engine: dict[str, Any] | None = None,
        indexer: bool = True,
        **changes: Any,
    ) -> AsyncIterator[Served]:
        changed = replace(config, **changes)
        channels = in_directory(changed.sockets)
        async with contextlib.AsyncExitStack() as stack:
            gateway = await stack.enter_async_context(running(changed, channels))
            indexed: list[GatewayToIndexer] = []
            if indexer:
                await stack.enter_async_context(_indexer(channels, indexed))
            site = web.TCPSite(gateway.runner, "127.0.0.1", 0)
            await site.start()
            http = await stack.enter_async_context(aiohttp.ClientSession())
            port = gateway.runner.addresses[0][1]
            scripted = ScriptedEngine(channels, script, **(engine or {}))
            await stack.enter_async_context(scripted)
            assert changed.request_log_jsonl is not None
            served = Served(
                url=f"http://127.0.0.1:{port}",
                http=http,
                engine=scripted,
                indexed=indexed,
                log_path=changed.request_log_jsonl,
                tokenizer=tokenizer,
                gateway=gateway,
            )
            await served.wait_for_health(200)
            if indexer:
                await _wait_for_indexer(served)
            yield served

    return start


async def _wait_for_indexer(served: Served) -> None:
    async with asyncio.timeout(5):
        while True:
            async with served.http.get(f"{served.url}/health") as answer:
                if (await answer.json())["services"]["indexer"] == "ok":
                    return
            await asyncio.sleep(0.02)


@contextlib.asynccontextmanager
async def _indexer(channels: Endpoints, indexed: list[GatewayToIndexer]) -> AsyncIterator[None]:
    """Takes what the gateway sends to the indexer."""
    context = zmq.asyncio.Context()
    socket = sockets.bind(context, zmq.PULL, channels.build)
    codec: Codec[GatewayToIndexer] = Codec(GatewayToIndexer)

    async def take() -> None:
        while True:
            indexed.append(codec.decode(await socket.recv_multipart()))

    task = asyncio.create_task(take())
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        context.destroy(linger=0)
