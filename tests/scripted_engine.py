"""An engine that follows a script, behind the engine's own messages: for faults and protocols."""

import asyncio
import contextlib
import itertools
import uuid
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
import numpy as np
import zmq
import zmq.asyncio

from shared import sockets
from shared.endpoints import Endpoints
from shared.messages import (
    ArchiveStats,
    Cancel,
    DraftRecord,
    EngineLimits,
    EngineReady,
    EngineStatus,
    EngineTimings,
    EngineToGateway,
    Failed,
    FailureCode,
    Finished,
    FinishReason,
    GatewayToEngine,
    Generate,
    GenerationStats,
    Hello,
    ModelFacts,
    OutputTokens,
    SourceStats,
    SpeculativeStats,
    Stop,
)
from shared.tokenizer import Tokenizer
from shared.wire import Codec


@dataclass
class Turn:
    """One request as its script sees it."""

    engine: "ScriptedEngine"
    gateway: bytes
    generate: Generate
    sources: tuple[SourceStats, ...] = ()
    drafts: DraftRecord | None = None
    archive: ArchiveStats | None = None
    cached_tokens: int = 1
    sent: int = 0
    ended: bool = False

    async def tokens(self, ids: Sequence[int], copied: int = 0) -> None:
        """One round."""
        self.sent += len(ids)
        message = OutputTokens(
            request_id=self.generate.request_id,
            token_ids=np.array(ids, dtype=np.int32),
            copied=copied,
        )
        await self.engine.send(self.gateway, message)

    async def finish(self, reason: FinishReason = "stop") -> None:
        self.ended = True
        stats = msgspec.structs.replace(
            make_stats(len(self.generate.prompt_ids), self.sent, self.sources),
            computed_prefill_tokens=len(self.generate.prompt_ids) - self.cached_tokens,
            cached_tokens=self.cached_tokens,
        )
        message = Finished(
            request_id=self.generate.request_id,
            reason=reason,
            stats=stats,
            archive=self.archive,
            drafts=self.drafts,
        )
        await self.engine.send(self.gateway, message)

    async def fail(self, code: FailureCode, message: str) -> None:
        self.ended = True
        failed = Failed(request_id=self.generate.request_id, code=code, message=message)
        await self.engine.send(self.gateway, failed)


Script = Callable[[Turn], Awaitable[None]]


def say(pieces: Sequence[Sequence[int]], *, delay_s: float = 0.0) -> Script:
    """One round for each piece, then the model's own end."""

    async def script(turn: Turn) -> None:
        for piece in pieces:
            if delay_s:
                await asyncio.sleep(delay_s)
            await turn.tokens(piece)
        await turn.tokens(turn.generate.stop_ids[:1])
        await turn.finish("stop")

    return script


def say_text(tokenizer: Tokenizer, text: str, *, tokens: int = 5, delay_s: float = 0.0) -> Script:
    """A text in rounds of so many tokens: tool calls and thinking in the model's own markup."""
    ids = tokenizer.encode_text(text).tolist()
    return say([ids[i : i + tokens] for i in range(0, len(ids), tokens)], delay_s=delay_s)


async def hang(turn: Turn) -> None:
    """Accepts a request and never says anything about it."""
    await asyncio.Event().wait()


@dataclass
class ScriptedEngine:
    """Runs its script for each Generate; a Cancel or a Stop ends it as in the real engine."""

    channels: Endpoints
    script: Script
    max_context: int = 512
    max_concurrency: int = 2
    max_waiting: int = 2
    ngram_draft_tokens: int = 15
    pulse_s: float = 0.2
    generates: list[Generate] = field(default_factory=list)
    cancels: list[str] = field(default_factory=list)
    stops: list[Stop] = field(default_factory=list)
    _turns: dict[str, tuple[Turn, "asyncio.Task[None]"]] = field(default_factory=dict)
    _gateways: list[bytes] = field(default_factory=list)
    _tasks: list["asyncio.Task[None]"] = field(default_factory=list)

    async def __aenter__(self) -> "ScriptedEngine":
        self._in: Codec[GatewayToEngine] = Codec(GatewayToEngine)
        self._out: Codec[EngineToGateway] = Codec(EngineToGateway)
        self._context = zmq.asyncio.Context()
        self._socket = sockets.bind(self._context, zmq.ROUTER, self.channels.generate)
        self._tasks = [asyncio.create_task(self._serve()), asyncio.create_task(self._pulse())]
        self._instance_id = uuid.uuid4().hex
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.crash()

    async def crash(self) -> None:
        """As a killed process: no last words, and the connection goes."""
        tasks = [*self._tasks, *(task for _, task in self._turns.values())]
        for task in tasks:
            task.cancel()
        for outcome in await asyncio.gather(*tasks, return_exceptions=True):
            if isinstance(outcome, Exception):
                raise outcome
        self._tasks, self._turns = [], {}
        self._context.destroy(linger=0)

    async def fall_silent(self) -> None:
        """Connected, but without a pulse, as a hung process."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def send(self, gateway: bytes, message: EngineToGateway) -> None:
        await self._socket.send_multipart([gateway, *self._out.encode(message)])

    def prepare(self, gateway: bytes, message: EngineToGateway) -> list[Any]:
        """The frames of a message that is sent many times with `send_now`."""
        return [gateway, *self._out.encode(message)]

    def send_now(self, frames: list[Any]) -> None:
        """Without waiting, for thousands of messages a second."""
        socket: zmq.Socket[bytes] = zmq.Socket.shadow(self._socket.underlying)
        socket.send_multipart(frames, zmq.NOBLOCK)

    async def change_context(self, tokens: int) -> None:
        """What fits from now on, announced as at a start."""
        self.max_context = tokens
        await self.send_to_all(self._ready())

    async def send_to_all(self, message: EngineToGateway) -> None:
        for gateway in self._gateways:
            await self.send(gateway, message)

    async def send_raw(self, *frames: bytes) -> None:
        """To the gateway that came last, as is."""
        await self._socket.send_multipart([self._gateways[-1], *frames])

    async def wait_for(self, condition: Callable[[], Any], timeout_s: float = 5.0) -> None:
        async with asyncio.timeout(timeout_s):
            while not condition():
                await asyncio.sleep(0.005)

    async def _serve(self) -> None:
        while True:
            gateway, *frames = await self._socket.recv_multipart()
            match self._in.decode(frames):
                case Hello():
                    if gateway not in self._gateways:
                        self._gateways.append(gateway)
                    await self.send(gateway, self._ready())
                case Generate() as generate:
                    self.generates.append(generate)
                    turn = Turn(self, gateway, generate)
                    task = asyncio.create_task(self._run(turn))
                    self._turns[generate.request_id] = (turn, task)
                case Cancel(request_id=request_id):
                    self.cancels.append(request_id)
                    await self._end(request_id, "cancelled")
                case Stop(request_id=request_id, output_tokens=output_tokens) as stop:
                    self.stops.append(stop)
                    await self._end(request_id, "stop", output_tokens)

    async def _run(self, turn: Turn) -> None:
        await self.script(turn)
        assert turn.ended, "a script must end its request, hang or be stopped"

    async def _end(self, request_id: str, reason: FinishReason, sent: int | None = None) -> None:
        turn, task = self._turns[request_id]
        if turn.ended:
            return
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        turn.sent = turn.sent if sent is None else sent
        await turn.finish(reason)

    async def _pulse(self) -> None:
        for _ in itertools.count():
            await asyncio.sleep(self.pulse_s)
            running = sum(not turn.ended for turn, _ in self._turns.values())
            status = EngineStatus(
                running=running, waiting=0, kv_used_tokens=0, kv_total_tokens=self.max_context
            )
            for gateway in self._gateways:
                await self.send(gateway, status)

    def _ready(self) -> EngineReady:
        return EngineReady(
            instance_id=self._instance_id,
            model=ModelFacts(
                model_id="tiny",
                family="llama",
                vocab_size=320,
                max_context=self.max_context,
                parameters=1000,
                weight_bytes=4000,
                dtype="float32",
                device="cpu",
                threads=1,
            ),
            limits=EngineLimits(
                max_concurrency=self.max_concurrency,
                max_waiting=self.max_waiting,
                spec="off",
                draft_tokens=0,
                ngram_draft_tokens=self.ngram_draft_tokens,
                ngram_policy="adaptive",
                ngram_min_match=1,
                lookup_ngram=0,
            ),
        )


def make_stats(
    prompt_tokens: int, output_tokens: int, sources: tuple[SourceStats, ...] = ()
) -> GenerationStats:
    drafted = sum(source.drafted_tokens for source in sources)
    accepted = sum(source.accepted_tokens for source in sources)
    rounds = sum(source.rounds for source in sources)
    return GenerationStats(
        prompt_tokens=prompt_tokens,
        output_tokens=output_tokens,
        computed_prefill_tokens=prompt_tokens - 1,
        cached_tokens=1,
        decode_passes=max(1, output_tokens - 1 - accepted),
        timings=EngineTimings(
            queue_s=0.001,
            prefill_s=0.02,
            decode_s=0.5,
            forward_s=0.4,
            host_s=0.1,
            neural_s=0.02,
        ),
        speculative=SpeculativeStats(
            backend="ngram",
            draft_window=15,
            rounds=rounds,
            drafted_tokens=drafted,
            accepted_tokens=accepted,
            fallback_steps=3,
            accepted_per_position=(rounds,) + (0,) * 14,
            ngram_rounds=rounds,
            ngram_drafted_tokens=drafted,
            ngram_accepted_tokens=accepted,
            ngram_handoffs=0,
            ngram_resumes=0,
            ngram_index_wait_rounds=1,
            sources=sources,
        ),
    )
