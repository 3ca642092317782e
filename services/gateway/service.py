"""One request from its body to the last byte of its answer, whatever its protocol."""

import asyncio
import time
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

import structlog
from aiohttp import web

from services.gateway.admission import Admission
from services.gateway.archive_link import ArchiveLink
from services.gateway.body_reader import BodyReader
from services.gateway.call_memory import CallListener
from services.gateway.choices import Choices
from services.gateway.config import GatewayConfig
from services.gateway.draft_records import DraftRecords
from services.gateway.draft_session import generation_comment, generation_header
from services.gateway.engine_link import EngineLink
from services.gateway.generation import Generation
from services.gateway.indexer_link import IndexerLink
from services.gateway.metrics_collector import LiveMetrics
from services.gateway.output.output import Output
from services.gateway.output_memory import AnswerTokens
from services.gateway.page.recent import RecentRequests
from services.gateway.planner import Plan, Planner
from services.gateway.protocols.protocol import ChoicesHandler, Head, News, ProtocolHandler, Reply
from services.gateway.protocols.usage import ninfer_object
from services.gateway.request import Request
from services.gateway.request_log import GenerationLog, RequestLog, describe_error
from services.gateway.result import Result
from services.gateway.token_gaps import TokenGaps
from services.gateway.trace_parent import trace_of
from shared.errors import EngineFault, NinferError
from shared.tokenizer import Tokenizer

STREAM_HEADERS = {
    "Content-Type": "text/event-stream; charset=utf-8",
    "Cache-Control": "no-cache",
    "X-Accel-Buffering": "no",
}
CLIENT_CHARACTERS = 200  # of a User-Agent, in the log
# Not an answer, since nobody is there to read one; for the log.
DISCONNECTED = {
    "status": 499,
    "type": "Disconnected",
    "code": "client_disconnected",
    "param": None,
    "reason": "the client left before its request had begun",
}

REQUEST_ID = web.RequestKey("request_id", str)
ID_PREFIX = "req_"  # of calls that reach no protocol


class Answer(Protocol[News]):
    """A `Generation`, or `Choices`."""

    @property
    def ended(self) -> bool: ...

    @property
    def result(self) -> Result: ...

    async def next_events(self, within_s: float) -> list[News] | None: ...

    async def abandon(self) -> None: ...


@dataclass(frozen=True)
class GenerationService:
    """Everything an answer needs; one per process."""

    config: GatewayConfig
    planner: Planner
    tokenizer: Tokenizer
    link: EngineLink
    indexer: IndexerLink
    archive: ArchiveLink | None  # None: sessions are not retained
    log: RequestLog
    admission: Admission
    bodies: BodyReader
    drafts: DraftRecords
    gaps: TokenGaps
    recent: RecentRequests
    metrics: LiveMetrics
    abandoned: set[asyncio.Task[None]] = field(default_factory=set)  # last word awaited

    async def handle(self, http: web.Request, protocol: ProtocolHandler) -> web.StreamResponse:
        """Everything that can be refused is refused before the first byte of an answer."""
        began_s = time.monotonic()
        # one name for the reply's header and id, the log and the other processes
        http[REQUEST_ID] = protocol.id_prefix + http[REQUEST_ID].removeprefix(ID_PREFIX)
        described: dict[str, Any] = {
            "request_id": http[REQUEST_ID],
            "protocol": protocol.name,
            "client": http.headers.get("User-Agent", "")[:CLIENT_CHARACTERS],
            **trace_of(http.headers),
        }
        places = 0  # in the queue or on a row, one for each choice
        generation: Generation | Choices | None = None
        try:
            self.admission.check()
            raw = await self.bodies.read(http)
            engine = self.admission.enter()
            places = 1
            # schemas become grammars there, which may take a while
            request = await asyncio.to_thread(protocol.parse, raw)
            described |= request.described
            self.admission.enter_choices(request.choices)
            places = request.choices
            plan = await self.planner.plan(request, http[REQUEST_ID], http.headers, engine)
            described |= plan.described
            generation = self._begin(plan, request.choices, described, began_s)
        except NinferError as error:
            self.log.request_error(described, "prepare", describe_error(error))
            raise
        except asyncio.CancelledError:
            self.log.request_error(described, "prepare", DISCONNECTED)
            raise
        finally:
            if generation is None:
                self.admission.leave(places)
        try:
            return await self._reply(http, protocol, request, plan, generation)
        finally:
            self._let_go(generation, places)

    def _begin(
        self, plan: Plan, choices: int, described: dict[str, Any], began_s: float
    ) -> Generation | Choices:
        """Raises EngineDead. Never waits: nothing is registered that is not also let go."""

        def make(index: int, log: GenerationLog) -> Generation:
            return self._generation(plan, index, log, described, began_s=began_s)

        answer = make(0, self.log) if choices == 1 else Choices(make, choices, self.log)
        answer.start()
        return answer

    def _generation(
        self,
        plan: Plan,
        choice: int,
        log: GenerationLog,
        described: dict[str, Any],
        *,
        began_s: float,
    ) -> Generation:
        generate, index = plan.choice(choice)
        return Generation(
            link=self.link,
            indexer=self.indexer,
            log=log,
            drafts=self.drafts,
            gaps=self.gaps,
            recent=self.recent,
            generate=generate,
            index=index,
            output=Output(
                self.tokenizer,
                plan.new_parser(),
                plan.stops,
                min_tokens=generate.min_output_tokens,
                stop_ids=generate.stop_ids,
                places=generate.top_logprobs is not None,
            ),
            described=described,
            session=plan.session,
            calls=CallListener(self.planner.calls),
            tokens=AnswerTokens(self.planner.outputs, generate.prompt_ids, generate.cache_salt),
            began_s=began_s,
        )

    async def _reply(
        self,
        http: web.Request,
        protocol: ProtocolHandler,
        request: Request,
        plan: Plan,
        answer: Generation | Choices,
    ) -> web.StreamResponse:
        prompt_tokens = len(plan.generate.prompt_ids)

        def head(generation: Generation, choice: int) -> Head:
            name = self.planner.model_id
            return Head(http[REQUEST_ID], name, prompt_tokens, generation.progress, choice)

        if isinstance(answer, Generation):
            reply = protocol.reply(request, head(answer, 0))
            return await self._answer(http, request, reply, answer)
        assert isinstance(protocol, ChoicesHandler), "only such a protocol reads n"
        heads = [head(generation, choice) for choice, generation in enumerate(answer.each)]
        return await self._answer(http, request, protocol.choices(request, heads), answer)

    async def _answer(
        self, http: web.Request, request: Request, reply: Reply[News], generation: Answer[News]
    ) -> web.StreamResponse:
        if request.stream:
            return await self._stream(http, generation, reply)
        events: list[News] = []
        while not generation.ended:
            events += await generation.next_events(self.config.heartbeat_s) or ()
        result = generation.result
        body = reply.body(events, result, ninfer_object(result))
        return web.json_response(body, headers=generation_header(result.archive))

    async def _stream(
        self, http: web.Request, generation: Answer[News], reply: Reply[News]
    ) -> web.StreamResponse:
        response = web.StreamResponse(headers=STREAM_HEADERS)
        try:
            await response.prepare(http)
            await self._write(response, reply.opening())
            try:
                await self._events(response, generation, reply)
            except NinferError as error:
                await self._write(response, reply.failed(error))
            await response.write_eof()
        except (ConnectionError, TimeoutError):
            # the client is gone, or does not read: its buffer is dropped with the connection
            if http.transport is not None:
                http.transport.abort()
        return response

    async def _events(
        self, response: web.StreamResponse, generation: Answer[News], reply: Reply[News]
    ) -> None:
        """Everything after the opening. After an error no end of stream is written."""
        beat_s = time.monotonic() + self.config.heartbeat_s
        try:
            while not generation.ended:
                events = await generation.next_events(max(0.0, beat_s - time.monotonic()))
                # events may write nothing yet, and that is silence too
                written = reply.events(events) if events else b""
                if not written and time.monotonic() >= beat_s:
                    written = reply.heartbeat()
                if written:
                    await self._write(response, written)
                    beat_s = time.monotonic() + self.config.heartbeat_s
            result = generation.result
            # what only the end can tell: SSE comments in front of the terminal events
            end = reply.terminal(result, generation_comment(result.archive))
        except (NinferError, ConnectionError, TimeoutError):
            raise
        except Exception as exc:
            # the status is out, so the fault must become an event too
            structlog.get_logger(service="gateway").exception("stream_failed")
            raise EngineFault("internal error") from exc
        await self._write(response, end)

    async def _write(self, response: web.StreamResponse, data: bytes) -> None:
        """Raises TimeoutError: the write buffer stayed full."""
        async with asyncio.timeout(self.config.slow_reader_s):
            await response.write(data)

    def _let_go(self, generation: Generation | Choices, places: int) -> None:
        """After an answer, or of a client that left in any way and at any moment."""
        if generation.ended:
            self.admission.leave(places)
            return
        task = asyncio.get_running_loop().create_task(generation.abandon())
        self.abandoned.add(task)
        task.add_done_callback(partial(self._abandoned, places=places))

    def _abandoned(self, task: asyncio.Task[None], *, places: int) -> None:
        self.abandoned.discard(task)
        self.admission.leave(places)
