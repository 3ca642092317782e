"""From a parsed body to the messages for engine and indexer: the checks that need the model."""

import asyncio
from dataclasses import dataclass
from typing import Any

import msgspec

from services.gateway import chat_request
from services.gateway.chat_body import ChatBody
from shared.errors import ModelNotFound, PromptTooLong
from shared.messages import BuildIndex, EngineReady, Generate, Sampling
from shared.template import ChatTemplate, Message
from shared.tokenizer import Tokenizer


@dataclass(frozen=True)
class ChatPlan:
    generate: Generate
    index: BuildIndex | None  # None when the engine copies nothing
    stops: tuple[str, ...]
    described: dict[str, Any]  # for the log


@dataclass(frozen=True)
class ChatPlanner:
    model_id: str
    tokenizer: Tokenizer
    template: ChatTemplate
    sampling: Sampling  # the defaults
    default_max_tokens: int
    queue_timeout_s: float

    async def plan(self, body: ChatBody, request_id: str, engine: EngineReady) -> ChatPlan:
        """Raises RequestError: the body asks for what cannot be done."""
        if body.model not in (None, self.model_id):
            raise ModelNotFound(
                f"The model '{body.model}' does not exist; this server has '{self.model_id}'",
                param="model",
            )
        chat_request.refuse_unbuilt(body, renders_tools=self.template.renders_tools)
        stops = chat_request.stops_of(body)
        predicted = chat_request.predicted_of(body)
        sampling = chat_request.sampling_of(body, self.sampling)
        messages = chat_request.messages_of(body)
        tools = () if body.tool_choice == "none" else tuple(body.tools or ())
        self._refuse_hopeless(messages, engine.model.max_context)
        # a long prompt takes a while, in which other streams must go on
        prompt_ids = await asyncio.to_thread(self.template.encode, messages, tools)
        room = engine.model.max_context - len(prompt_ids)
        if room < 1:
            raise _too_long(engine.model.max_context, f"{len(prompt_ids)} tokens")
        asked = body.max_completion_tokens or body.max_tokens
        limit = min(asked or self.default_max_tokens, room)
        index = BuildIndex(
            request_id=request_id,
            prompt_ids=prompt_ids,
            tool_texts=chat_request.tool_texts_of(body),
            predicted=predicted,
        )
        copies = engine.limits.ngram_draft_tokens > 0
        return ChatPlan(
            generate=Generate(
                request_id=request_id,
                prompt_ids=prompt_ids,
                max_output_tokens=limit,
                stop_ids=self.tokenizer.stop_ids,
                sampling=sampling,
                expect_index=copies,
                queue_deadline_s=self.queue_timeout_s,
            ),
            index=index if copies else None,
            stops=stops,
            described={
                "model": self.model_id,
                "prompt_tokens": len(prompt_ids),
                "output_limit": limit,
                "requested_output_tokens": asked or self.default_max_tokens,
                "requested_output_tokens_source": "client" if asked else "server_default",
                "sampling": {
                    name: value
                    for name, value in msgspec.to_builtins(sampling).items()
                    if name != "type"
                },
            },
        )

    def _refuse_hopeless(self, messages: list[Message], context: int) -> None:
        """Refuses what cannot fit whatever its tokens are, before counting them costs seconds."""
        characters = sum(len(message["content"]) for message in messages)
        fewest = characters // self.tokenizer.longest_token
        if fewest > context:
            raise _too_long(context, f"at least {fewest} tokens")


def _too_long(context: int, prompt: str) -> PromptTooLong:
    return PromptTooLong(
        f"This model's maximum context length is {context} tokens, "
        f"but the prompt has {prompt} and needs room for an answer.",
        param="messages",
    )
