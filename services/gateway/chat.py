"""`POST /v1/chat/completions`."""

import asyncio
import time
import uuid
from dataclasses import dataclass

import msgspec
from aiohttp import web

from services.gateway import chat_request
from services.gateway.chat_reply import DONE, ChatReply, error_body, event
from services.gateway.config import GatewayConfig
from services.gateway.engine_link import EngineLink
from services.gateway.generation import Generation, describe_error
from services.gateway.indexer_link import IndexerLink
from services.gateway.output_text import OutputText
from services.gateway.request_log import RequestLog
from shared.errors import EngineDead, NinferError, Overloaded, PromptTooLong, UnsupportedMedia
from shared.messages import BuildIndex, EngineReady, Generate, Sampling
from shared.template import ChatTemplate
from shared.tokenizer import Tokenizer

STREAM_HEADERS = {
    "Content-Type": "text/event-stream; charset=utf-8",
    "Cache-Control": "no-cache",
    "X-Accel-Buffering": "no",
}


@dataclass(frozen=True)
class ChatService:
    """Everything a completion needs; one per process."""

    config: GatewayConfig
    model_id: str
    tokenizer: Tokenizer
    template: ChatTemplate
    sampling: Sampling  # the defaults
    link: EngineLink
    indexer: IndexerLink
    log: RequestLog
    background: set[asyncio.Task[None]]  # cancelled requests whose last word is awaited

    async def handle(self, http: web.Request) -> web.StreamResponse:
        """Everything that can be refused is refused before the first byte of an answer."""
        began_s = time.monotonic()
        request_id = f"chatcmpl-{uuid.uuid4().hex}"
        try:
            body = await self._read(http)
            generation = self._prepare(body, request_id, http, began_s)
            await generation.start()
        except NinferError as error:
            described = {"request_id": request_id, "protocol": "openai_chat_completions"}
            self.log.request_error(described, "prepare", describe_error(error))
            raise
        reply = ChatReply(request_id, self.model_id)
        try:
            if body.stream:
                return await self._stream(http, body, generation, reply)
            text = "".join([t async for t in generation.texts(3600.0) if t is not None])
            return web.json_response(
                reply.body(generation, text), headers={"x-request-id": request_id}
            )
        finally:
            # of a client that left, in any way and at any moment; nothing to do after an end
            task = asyncio.get_running_loop().create_task(generation.abandon())
            self.background.add(task)
            task.add_done_callback(self.background.discard)

    @staticmethod
    async def _read(http: web.Request) -> chat_request.ChatBody:
        if http.headers.get("Content-Encoding", "identity") != "identity":
            raise UnsupportedMedia("compressed bodies are not accepted")
        if http.content_type != "application/json":
            raise UnsupportedMedia("the body must be application/json")
        return chat_request.parse(await http.read())

    def _prepare(
        self, body: chat_request.ChatBody, request_id: str, http: web.Request, began_s: float
    ) -> Generation:
        chat_request.check_model(body, self.model_id)
        chat_request.refuse_unbuilt(body, renders_tools=self.template.renders_tools)
        messages = chat_request.messages_of(body)
        stops = chat_request.stops_of(body)
        predicted = chat_request.predicted_of(body)
        sampling = chat_request.sampling_of(body, self.sampling)
        engine = self._engine()
        tools = () if body.tool_choice == "none" else tuple(body.tools or ())
        prompt_ids = self.template.encode(messages, tools)
        room = engine.model.max_context - len(prompt_ids)
        if room < 1:
            raise PromptTooLong(
                f"This model's maximum context length is {engine.model.max_context} tokens, "
                f"but the prompt has {len(prompt_ids)} tokens.",
                param="messages",
            )
        asked = body.max_completion_tokens or body.max_tokens
        copying = engine.limits.ngram_draft_tokens > 0
        generate = Generate(
            request_id=request_id,
            prompt_ids=prompt_ids,
            max_output_tokens=min(asked or self.config.default_max_tokens, room),
            stop_ids=self.tokenizer.stop_ids,
            sampling=sampling,
            expect_index=copying,
            queue_deadline_s=self.config.queue_timeout_s,
        )
        index = BuildIndex(
            request_id=request_id,
            prompt_ids=prompt_ids,
            tool_texts=chat_request.tool_texts_of(body),
            predicted=predicted,
        )
        described = {
            "request_id": request_id,
            "protocol": "openai_chat_completions",
            "model": self.model_id,
            "stream": bool(body.stream),
            "message_count": len(body.messages),
            "tool_count": len(body.tools or ()),
            "requested_output_tokens": generate.max_output_tokens,
            "requested_output_tokens_source": "client" if asked else "server_default",
            "client": http.headers.get("User-Agent", "")[:200],
            "sampling": {k: v for k, v in msgspec.to_builtins(sampling).items() if k != "type"},
        }
        return Generation(
            link=self.link,
            indexer=self.indexer,
            log=self.log,
            generate=generate,
            index=index if copying else None,
            output=OutputText(self.tokenizer, stops),
            described=described,
            began_s=began_s,
        )

    def _engine(self) -> EngineReady:
        """Raises EngineDead while there is none, Overloaded when its queue is full."""
        engine = self.link.ready
        if engine is None:
            raise EngineDead("the engine is loading or restarting; try again")
        if self.link.open_requests >= engine.limits.max_concurrency + engine.limits.max_waiting:
            raise Overloaded("too many requests are open; try again")
        return engine

    async def _stream(
        self,
        http: web.Request,
        body: chat_request.ChatBody,
        generation: Generation,
        reply: ChatReply,
    ) -> web.StreamResponse:
        response = web.StreamResponse(
            headers={**STREAM_HEADERS, "x-request-id": generation.generate.request_id}
        )
        await response.prepare(http)
        await self._write(response, reply.chunk({"role": "assistant", "content": ""}))
        try:
            async for text in generation.texts(self.config.heartbeat_s):
                delta = {} if text is None else {"content": text}
                await self._write(response, reply.chunk(delta))
        except NinferError as error:
            await self._write(response, event(error_body(error)))
            await response.write_eof()
            return response
        await self._write(response, reply.chunk({}, generation.finish_reason))
        if body.stream_options is not None and body.stream_options.include_usage:
            await self._write(response, reply.usage_chunk(generation))
        await self._write(response, DONE)
        await response.write_eof()
        return response

    async def _write(self, response: web.StreamResponse, data: bytes) -> None:
        """A client that does not read for long is treated as gone."""
        try:
            await asyncio.wait_for(response.write(data), self.config.slow_reader_s)
        except TimeoutError as exc:
            raise ConnectionResetError("the client does not read") from exc
