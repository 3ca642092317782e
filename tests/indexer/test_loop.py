"""The indexer over its real sockets, inside the test's process."""

import asyncio
import tempfile
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest
import structlog
import zmq
import zmq.asyncio
from structlog.testing import capture_logs

from services.indexer.builder import Builder
from services.indexer.loop import Indexer
from shared import endpoints, sockets
from shared.endpoints import Endpoints
from shared.matching.lookup import find
from shared.matching.segment import SegmentIndex
from shared.messages import BuildIndex, DropIndex, GatewayToIndexer, IndexReady
from shared.wire import Codec
from tests.indexer.stand_in import CharTokenizer, int32, listing

WAIT_MS = 10_000


@dataclass
class Peers:
    """The gateway's and the engine's ends of the indexer's channels."""

    gateway: zmq.asyncio.Socket
    engine: zmq.asyncio.Socket | None

    async def send(self, *messages: GatewayToIndexer) -> None:
        codec: Codec[GatewayToIndexer] = Codec(GatewayToIndexer)
        for message in messages:
            await self.gateway.send_multipart(codec.encode(message))

    async def receive(self) -> IndexReady:
        assert self.engine is not None
        assert await self.engine.poll(WAIT_MS), "no index arrived"
        codec: Codec[IndexReady] = Codec(IndexReady)
        return codec.decode(await self.engine.recv_multipart())


def build(request_id: str, *tool_texts: str, predicted: str | None = None) -> BuildIndex:
    return BuildIndex(
        request_id=request_id,
        prompt_ids=int32(5, 6, 7, 5, 6, 8),
        tool_texts=tool_texts,
        predicted=predicted,
    )


@pytest.fixture
def channels() -> Iterator[Endpoints]:
    with tempfile.TemporaryDirectory(prefix="ninfer-") as folder:  # short: sun_path is 108 bytes
        yield endpoints.in_directory(Path(folder))


@pytest.fixture
def tokenizer() -> CharTokenizer:
    return CharTokenizer()


@pytest.fixture
async def indexer(channels: Endpoints, tokenizer: CharTokenizer) -> AsyncIterator[Indexer]:
    structlog.reset_defaults()
    stop = asyncio.Event()
    served = Indexer(channels, Builder(tokenizer, 1000), backlog_builds=3)
    running = asyncio.create_task(served.run(stop))
    yield served
    tokenizer.gate.set()
    stop.set()
    await asyncio.wait_for(running, 10)
    served.close()


@pytest.fixture
async def peers(channels: Endpoints, indexer: Indexer) -> AsyncIterator[Peers]:
    context = zmq.asyncio.Context()
    engine = sockets.bind(context, zmq.PULL, channels.indexes)
    connected = Peers(sockets.connect(context, zmq.PUSH, channels.build), engine)
    await until_connected(connected)
    yield connected
    context.destroy(linger=0)


@pytest.fixture
async def gateway_alone(channels: Endpoints, indexer: Indexer) -> AsyncIterator[Peers]:
    context = zmq.asyncio.Context()
    yield Peers(sockets.connect(context, zmq.PUSH, channels.build), None)
    context.destroy(linger=0)


def warnings(logs: Sequence[Mapping[str, Any]], field: str) -> list[tuple[str, str]]:
    return [(e["event"], e[field]) for e in logs if e["log_level"] != "debug"]


async def until_connected(peers: Peers) -> None:
    """Until indexes reach the engine: those before the indexer has connected are dropped."""
    assert peers.engine is not None
    for attempt in range(100):
        await peers.send(build(f"warm-up-{attempt}"))
        if await peers.engine.poll(100):
            while (await peers.receive()).request_id != f"warm-up-{attempt}":
                pass  # a slow machine may have sent more than one
            return
    raise AssertionError("the indexer never connected")


async def until_busy(tokenizer: CharTokenizer) -> None:
    assert await asyncio.to_thread(tokenizer.busy.wait, 10)


async def test_an_index_arrives_and_answers_like_one_built_in_place(peers: Peers) -> None:
    message = build("r", listing("a", "b", "c"), predicted="abcabc")
    await peers.send(message)

    ready = await peers.receive()

    assert ready.request_id == "r"
    assert [s.kind for s in ready.sources] == ["prompt", "predicted"]
    rebuilt = [SegmentIndex(s.tokens, s.order) for s in ready.sources]
    reference = SegmentIndex.build(message.prompt_ids)
    assert find([5, 6], rebuilt, 9) == find([5, 6], [reference], 9)


async def test_each_request_gets_one_index(peers: Peers) -> None:
    await peers.send(build("a"), build("b"), build("c"))
    assert [(await peers.receive()).request_id for _ in "abc"] == ["a", "b", "c"]
    assert peers.engine is not None
    assert not await peers.engine.poll(50)


async def test_a_running_build_that_is_dropped_sends_nothing(
    peers: Peers, tokenizer: CharTokenizer, indexer: Indexer
) -> None:
    tokenizer.gate.clear()
    await peers.send(build("dropped", predicted="p"))
    await until_busy(tokenizer)
    # The first drop is known to be handled once the build behind it is waiting.
    await peers.send(DropIndex(request_id="dropped"), build("next"))
    await waiting(indexer, "next")
    tokenizer.gate.set()
    assert (await peers.receive()).request_id == "next"


async def test_a_waiting_build_that_is_dropped_is_never_started(
    peers: Peers, tokenizer: CharTokenizer, indexer: Indexer
) -> None:
    tokenizer.gate.clear()
    await peers.send(build("first", predicted="p"))
    await until_busy(tokenizer)
    await peers.send(build("dropped", predicted="never"), DropIndex(request_id="dropped"))
    await peers.send(build("last"))
    await waiting(indexer, "last")
    tokenizer.gate.set()
    assert [(await peers.receive()).request_id for _ in range(2)] == ["first", "last"]
    assert tokenizer.encoded == ["p"]


async def test_a_full_backlog_drops_the_oldest_waiting_build(
    peers: Peers, tokenizer: CharTokenizer, indexer: Indexer
) -> None:
    tokenizer.gate.clear()
    with capture_logs() as logs:
        await peers.send(build("running", predicted="p"))
        await until_busy(tokenizer)
        await peers.send(*(build(name) for name in ("oldest", "b", "c", "d")))
        await waiting(indexer, "b", "c", "d")
    tokenizer.gate.set()
    got = [(await peers.receive()).request_id for _ in range(4)]
    assert got == ["running", "b", "c", "d"]
    assert warnings(logs, "request_id") == [("build_dropped", "oldest")]


async def test_garbage_is_logged_once_per_kind_and_the_next_message_is_served(
    peers: Peers,
) -> None:
    with capture_logs() as logs:
        for _ in range(3):
            await peers.gateway.send_multipart([b"\xc1 no message"])
            await peers.gateway.send_multipart(
                [msgspec.msgpack.encode({"type": "BuildIndex"}), b"1"]
            )
            await peers.gateway.send_multipart([msgspec.msgpack.encode({"type": "Generate"})])
        await peers.send(build("fine"))
        assert (await peers.receive()).request_id == "fine"
    assert warnings(logs, "kind") == [
        ("garbage", "unknown"),
        ("garbage", "BuildIndex"),
    ]


async def test_a_build_that_fails_costs_only_its_own_index(peers: Peers) -> None:
    with capture_logs() as logs:
        await peers.send(build("odd", predicted="unencodable"), build("fine"))
        assert (await peers.receive()).request_id == "fine"
    assert warnings(logs, "request_id") == [("build_failed", "odd")]


async def until_logged(logs: list[Any]) -> None:
    while not logs:  # the test's own time limit ends this
        await asyncio.sleep(0.01)


async def test_without_an_engine_the_index_is_dropped_with_one_line(
    gateway_alone: Peers, indexer: Indexer
) -> None:
    with capture_logs() as logs:
        await gateway_alone.send(build("lost"))
        await until_logged(logs)
    assert warnings(logs, "request_id") == [("index_dropped", "lost")]


async def test_an_engine_that_comes_back_gets_the_next_index(
    gateway_alone: Peers, channels: Endpoints
) -> None:
    with capture_logs() as logs:
        await gateway_alone.send(build("lost"))
        await until_logged(logs)
    context = zmq.asyncio.Context()
    gateway_alone.engine = sockets.bind(context, zmq.PULL, channels.indexes)
    await until_connected(gateway_alone)
    context.destroy(linger=0)


async def waiting(indexer: Indexer, *request_ids: str) -> None:
    """Until exactly these builds wait: what was sent before has then been handled."""
    for _ in range(1000):
        if indexer.waiting == request_ids:
            return
        await asyncio.sleep(0.01)
    raise AssertionError(f"waiting: {indexer.waiting}")


async def test_an_index_waits_a_moment_for_an_engine_that_is_starting(
    gateway_alone: Peers, channels: Endpoints
) -> None:
    await gateway_alone.send(build("early"))
    await asyncio.sleep(0.3)  # built by now, and without an engine to take it
    context = zmq.asyncio.Context()
    engine = sockets.bind(context, zmq.PULL, channels.indexes)
    frames = await asyncio.wait_for(engine.recv_multipart(), 10)
    assert Codec(IndexReady).decode(frames).request_id == "early"
    context.destroy(linger=0)
