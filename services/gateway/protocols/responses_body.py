"""The body of OpenAI's Responses."""

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from services.gateway.protocols.decoding import (
    MAX_MESSAGES,
    MAX_TOOLS,
    Count,
    Penalty,
    Share,
    Temperature,
    TopK,
    TopP,
)
from services.gateway.protocols.ninfer_options import NinferOptions


class Format(msgspec.Struct):
    type: str
    schema_: Any = msgspec.field(default=None, name="schema")


class Text(msgspec.Struct):
    format: Format | None = None


class ReasoningOptions(msgspec.Struct):
    effort: str | None = None
    summary: str | None = None


class ResponsesBody(msgspec.Struct):
    """Fields that are not here are known to be harmless, or unknown, and are ignored."""

    input: str | Annotated[list[dict[str, Any]], Meta(max_length=MAX_MESSAGES)]
    model: str | None = None
    instructions: str | None = None
    previous_response_id: str | None = None
    store: bool | None = None
    stream: bool | None = None
    max_output_tokens: Count | None = None
    temperature: Temperature | None = None
    top_p: TopP | None = None
    top_k: TopK | None = None
    min_p: Share | None = None
    presence_penalty: Penalty | None = None
    frequency_penalty: Penalty | None = None
    seed: int | None = None
    tools: Annotated[list[dict[str, Any]], Meta(max_length=MAX_TOOLS)] | None = None
    tool_choice: str | dict[str, Any] | None = None
    parallel_tool_calls: bool | None = None
    reasoning: ReasoningOptions | None = None
    text: Text | None = None
    truncation: str | None = None
    background: bool | None = None
    conversation: Any = None
    prompt: Any = None  # a template that OpenAI's servers hold
    top_logprobs: int | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    metadata: Any = None
    client_metadata: Any = None
    ninfer: NinferOptions | None = None


class Part(msgspec.Struct):
    type: str
    text: str | None = None
    refusal: str | None = None


class ReasoningPart(msgspec.Struct):
    type: str
    text: str = ""


class Item(msgspec.Struct):
    """One item of any type; which fields count depends on it."""

    type: str = "message"
    id: str | None = None
    role: str | None = None
    content: str | list[Part] | None = None
    call_id: str | None = None
    name: str | None = None
    namespace: str | None = None
    arguments: str | None = None
    input: str | None = None  # of a custom tool call
    output: str | list[Part] | None = None
    action: Any = None  # of a local shell call
