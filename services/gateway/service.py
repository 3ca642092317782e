"""One request from its body to the last byte of its answer, whatever its protocol."""

import asyncio
import time
from dataclasses import dataclass, field
from typing import Any

import structlog
from aiohttp import web

from services.gateway.admission import Admission
from services.gateway.archive_link import ArchiveLink
from services.gateway.body_reader import BodyReader
from services.gateway.call_memory import CallListener
from services.gateway.config import GatewayConfig
from services.gateway.draft_records import DraftRecords
from services.gateway.draft_session import generation_comment, generation_header
from services.gateway.engine_link import EngineLink
from services.gateway.generation import Generation
from services.gateway.indexer_link import IndexerLink
from services.gateway.metrics_collector import LiveMetrics
from services.gateway.output.events import Event, merged
from services.gateway.output.output import Output
from services.gateway.page.recent import RecentRequests
from services.gateway.planner import Plan, Planner
from services.gateway.protocols.protocol import Head, ProtocolHandler, Reply
from services.gateway.protocols.usage import ninfer_object
from services.gateway.request import Request
from services.gateway.request_log import RequestLog, describe_error
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
        entered = False
        generation: Generation | None = None
        try:
            self.admission.check()
            raw = await self.bodies.read(http)
            engine = self.admission.enter()
            entered = True
            # schemas become grammars there, which may take a while
            request = await asyncio.to_thread(protocol.parse, raw)
            described |= request.described
            plan = await self.planner.plan(request, http[REQUEST_ID], http.headers, engine)
            described |= plan.described
            generation = self._begin(plan, described, began_s)
        except NinferError as error:
            self.log.request_error(described, "prepare", describe_error(error))
            raise
        except asyncio.CancelledError:
            self.log.request_error(described, "prepare", DISCONNECTED)
            raise
        finally:
            if entered and generation is None:
                self.admission.leave()
        try:
            prompt_tokens = len(plan.generate.prompt_ids)
            progress = generation.progress
            head = Head(http[REQUEST_ID], self.planner.model_id, prompt_tokens, progress)
            reply = protocol.reply(request, head)
            return await self._answer(http, request, reply, generation)
        finally:
            self._let_go(generation)

    def _begin(self, plan: Plan, described: dict[str, Any], began_s: float) -> Generation:
        """Raises EngineDead. Never waits: nothing is registered that is not also let go."""
        generation = Generation(
            link=self.link,
            indexer=self.indexer,
            log=self.log,
            drafts=self.drafts,
            gaps=self.gaps,
            recent=self.recent,
            generate=plan.generate,
            index=plan.index,
            output=Output(
                self.tokenizer,
                plan.parser,
                plan.stops,
                min_tokens=plan.generate.min_output_tokens,
                stop_ids=plan.generate.stop_ids,
            ),
            described=described,
            session=plan.session,
            calls=CallListener(self.planner.calls),
            began_s=began_s,
        )
        generation.start()
        return generation

    async def _answer(
        self, http: web.Request, request: Request, reply: Reply, generation: Generation
    ) -> web.StreamResponse:
        if request.stream:
            return await self._stream(http, generation, reply)
        events: list[Event] = []
        while not generation.ended:
            events += await generation.next_events(self.config.heartbeat_s) or ()
        result = generation.result
        body = reply.body(merged(events), result, ninfer_object(result))
        return web.json_response(body, headers=self._closing_headers(generation))

    async def _stream(
        self, http: web.Request, generation: Generation, reply: Reply
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
        self, response: web.StreamResponse, generation: Generation, reply: Reply
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
            end = reply.terminal(generation.result, self._closing_comment(generation))
        except (NinferError, ConnectionError, TimeoutError):
            raise
        except Exception as exc:
            # the status is out, so the fault must become an event too
            structlog.get_logger(service="gateway").exception("stream_failed")
            raise EngineFault("internal error") from exc
        await self._write(response, end)

    def _closing_headers(self, generation: Generation) -> dict[str, str]:
        """Headers of a whole answer that only its end can tell."""
        return generation_header(generation.result.archive)

    def _closing_comment(self, generation: Generation) -> bytes:
        """The same in a stream: SSE comments in front of the terminal events."""
        return generation_comment(generation.result.archive)

    async def _write(self, response: web.StreamResponse, data: bytes) -> None:
        """Raises TimeoutError: the write buffer stayed full."""
        async with asyncio.timeout(self.config.slow_reader_s):
            await response.write(data)

    def _let_go(self, generation: Generation) -> None:
        """After an answer, or of a client that left in any way and at any moment."""
        if generation.ended:
            self.admission.leave()
            return
        task = asyncio.get_running_loop().create_task(generation.abandon())
        self.abandoned.add(task)
        task.add_done_callback(self._abandoned)

    def _abandoned(self, task: asyncio.Task[None]) -> None:
        self.abandoned.discard(task)
        self.admission.leave()
