"""`POST /v1/chat/completions`."""

import asyncio
import time
from dataclasses import dataclass, field
from typing import Any

import structlog
from aiohttp import web

from services.gateway import chat_body, chat_request
from services.gateway.admission import Admission
from services.gateway.chat_plan import ChatPlan, ChatPlanner
from services.gateway.chat_reply import DONE, ChatReply, error_body, event
from services.gateway.config import GatewayConfig
from services.gateway.engine_link import EngineLink
from services.gateway.generation import Generation
from services.gateway.indexer_link import IndexerLink
from services.gateway.output_text import OutputText
from services.gateway.request_log import RequestLog, describe_error
from shared.errors import BadParameter, BodyTooLarge, EngineFault, NinferError, UnsupportedMedia
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
}

REQUEST_ID = web.RequestKey("request_id", str)


@dataclass(frozen=True)
class ChatService:
    """Everything a completion needs; one per process."""

    config: GatewayConfig
    planner: ChatPlanner
    tokenizer: Tokenizer
    link: EngineLink
    indexer: IndexerLink
    log: RequestLog
    admission: Admission
    abandoned: set[asyncio.Task[None]] = field(default_factory=set)  # last word awaited

    async def handle(self, http: web.Request) -> web.StreamResponse:
        """Everything that can be refused is refused before the first byte of an answer."""
        began_s = time.monotonic()
        # one name for the reply's header and id, the log and the other processes
        http[REQUEST_ID] = f"chatcmpl-{http[REQUEST_ID]}"
        described: dict[str, Any] = {
            "request_id": http[REQUEST_ID],
            "protocol": "openai_chat_completions",
            "client": http.headers.get("User-Agent", "")[:CLIENT_CHARACTERS],
        }
        entered = False
        generation: Generation | None = None
        try:
            engine = self.admission.enter()
            entered = True
            body = await self._read(http)
            described |= chat_request.describe(body)
            plan = await self.planner.plan(body, described["request_id"], engine)
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
            return await self._answer(http, body, generation)
        finally:
            self._let_go(generation)

    async def _read(self, http: web.Request) -> chat_body.ChatBody:
        if http.headers.get("Content-Encoding", "identity") != "identity":
            raise UnsupportedMedia("compressed bodies are not accepted")
        if http.content_type != "application/json":
            raise UnsupportedMedia("the body must be application/json")
        try:
            async with asyncio.timeout(self.config.body_timeout_s):
                raw = await http.read()
        except TimeoutError as exc:
            raise BadParameter("the body did not arrive in time") from exc
        except web.HTTPRequestEntityTooLarge as exc:
            limit = self.config.max_body_mib
            raise BodyTooLarge(f"the body is larger than {limit} MiB") from exc
        except web.RequestPayloadError as exc:
            raise BadParameter("the body could not be read") from exc
        return chat_body.parse(raw)

    def _begin(self, plan: ChatPlan, described: dict[str, Any], began_s: float) -> Generation:
        """Raises EngineDead. Never waits: nothing is registered that is not also let go."""
        generation = Generation(
            link=self.link,
            indexer=self.indexer,
            log=self.log,
            generate=plan.generate,
            index=plan.index,
            output=OutputText(self.tokenizer, plan.stops),
            described=described,
            began_s=began_s,
        )
        generation.start()
        return generation

    async def _answer(
        self, http: web.Request, body: chat_body.ChatBody, generation: Generation
    ) -> web.StreamResponse:
        reply = ChatReply(http[REQUEST_ID], self.planner.model_id)
        if body.stream:
            options = body.stream_options
            usage = bool(options is not None and options.include_usage)
            return await self._stream(http, generation, reply, with_usage=usage)
        text = ""
        while not generation.ended:
            text += await generation.next_text(self.config.heartbeat_s) or ""
        return web.json_response(reply.body(generation, text))

    async def _stream(
        self, http: web.Request, generation: Generation, reply: ChatReply, *, with_usage: bool
    ) -> web.StreamResponse:
        response = web.StreamResponse(headers=STREAM_HEADERS)
        try:
            await response.prepare(http)
            await self._write(response, reply.chunk({"role": "assistant", "content": ""}))
            try:
                await self._events(response, generation, reply, with_usage=with_usage)
            except NinferError as error:
                await self._write(response, event(error_body(error)))
            await response.write_eof()
        except (ConnectionError, TimeoutError):
            # the client is gone, or does not read: its buffer is dropped with the connection
            if http.transport is not None:
                http.transport.abort()
        return response

    async def _events(
        self,
        response: web.StreamResponse,
        generation: Generation,
        reply: ChatReply,
        *,
        with_usage: bool,
    ) -> None:
        """Everything after the first chunk. After an error no end of stream is written."""
        try:
            while not generation.ended:
                text = await generation.next_text(self.config.heartbeat_s)
                if text != "":
                    delta = {} if text is None else {"content": text}
                    await self._write(response, reply.chunk(delta))
        except (NinferError, ConnectionError, TimeoutError):
            raise
        except Exception as exc:
            # the status is out, so the fault must become an event too
            structlog.get_logger(service="gateway").exception("stream_failed")
            raise EngineFault("internal error") from exc
        await self._write(response, reply.chunk({}, generation.finish_reason))
        if with_usage:
            await self._write(response, reply.usage_chunk(generation))
        await self._write(response, DONE)

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
