"""`/tokenize`, `/detokenize` and the counting endpoints: prompts without an answer."""

import asyncio
from typing import Annotated, Any

import msgspec
import numpy as np
from aiohttp import web
from msgspec import Meta

from services.gateway.protocols import chat_request
from services.gateway.protocols.chat_body import ChatMessage
from services.gateway.protocols.decoding import MAX_MESSAGES, decode
from services.gateway.protocols.protocol import ProtocolHandler
from services.gateway.service import GenerationService
from shared.errors import BadParameter

NO_LIMIT = 1 << 40  # tokens: counting is not bounded by the context


Messages = Annotated[list[ChatMessage], Meta(min_length=1, max_length=MAX_MESSAGES)]
TEXTS = ("content", "prompt", "messages")


class TokenizeBody(msgspec.Struct):
    """llama.cpp calls the text `content`, vLLM `prompt`; `messages` are shown by the template."""

    content: str | None = None
    prompt: str | None = None
    messages: Annotated[list[ChatMessage], Meta(min_length=1, max_length=MAX_MESSAGES)] | None = (
        None
    )
    model: str | None = None
    parse_special: bool = True
    with_pieces: bool = False


class DetokenizeBody(msgspec.Struct):
    tokens: list[Annotated[int, Meta(ge=0, lt=1 << 31)]]
    model: str | None = None


class Tokens:
    def __init__(self, service: GenerationService) -> None:
        self._service = service

    async def tokenize(self, http: web.Request) -> web.StreamResponse:
        raw = await self._service.bodies.read(http)
        body = decode(raw, TokenizeBody)
        given = [
            name for name in ("content", "prompt", "messages") if getattr(body, name) is not None
        ]
        if len(given) != 1:
            raise BadParameter("give one of content, prompt and messages", param="content")
        if body.messages is not None:
            request = chat_request.parse(raw)
            ids = (await self._service.planner.prompt_of(request, NO_LIMIT)).ids
        else:
            text = body.prompt if body.content is None else body.content
            assert text is not None
            tokenizer = self._service.tokenizer
            encode = tokenizer.encode_prompt if body.parse_special else tokenizer.encode_text
            ids = await asyncio.to_thread(encode, text)
        return web.json_response(self._answer(ids, with_pieces=body.with_pieces))

    async def detokenize(self, http: web.Request) -> web.StreamResponse:
        body = decode(await self._service.bodies.read(http), DetokenizeBody)
        tokenizer = self._service.tokenizer
        if any(token >= tokenizer.vocab_size for token in body.tokens):
            raise BadParameter("a token is outside of the vocabulary", param="tokens")
        text = await asyncio.to_thread(tokenizer.decode_all, body.tokens)
        return web.json_response({"content": text, "prompt": text})

    async def count(self, http: web.Request, protocol: ProtocolHandler) -> dict[str, Any]:
        """The prompt of a request of this protocol, counted with tools and template."""
        raw = await self._service.bodies.read(http)
        request = await asyncio.to_thread(protocol.parse, raw)
        self._service.planner.check_model(request)
        prompt = await self._service.planner.prompt_of(request, NO_LIMIT)
        return {"input_tokens": len(prompt.ids)}

    def _answer(self, ids: np.ndarray, *, with_pieces: bool) -> dict[str, Any]:
        tokens: list[Any] = ids.tolist()
        if with_pieces:
            decode_all = self._service.tokenizer.decode_all
            tokens = [{"id": token, "piece": decode_all([token])} for token in tokens]
        ready = self._service.link.ready
        context = ready.model.max_context if ready else None
        return {"tokens": tokens, "count": len(tokens), "max_model_len": context}
