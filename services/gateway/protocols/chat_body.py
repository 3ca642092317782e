"""The body of a chat completion."""

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from services.gateway.effort import Effort
from services.gateway.protocols.decoding import MAX_MESSAGES, MAX_TOOLS, ChoiceCount, Count
from services.gateway.protocols.decoding_fields import DecodingFields


class Part(msgspec.Struct):
    type: str
    text: str | None = None
    refusal: str | None = None


class Function(msgspec.Struct):
    name: str
    arguments: str | dict[str, Any] | None = None


class ToolCall(msgspec.Struct):
    function: Function
    id: str | None = None
    type: str | None = None


class ChatMessage(msgspec.Struct):
    role: str
    content: str | list[Part] | None = None
    tool_calls: list[ToolCall] | None = None
    function_call: Function | None = None  # the form before tools
    tool_call_id: str | None = None
    name: str | None = None
    # three names for one thing, in this order
    reasoning_content: str | None = None
    reasoning: Any = None
    reasoning_text: str | None = None


class StreamOptions(msgspec.Struct):
    include_usage: bool | None = None


class Prediction(msgspec.Struct):
    type: str
    content: str | list[Part]


class JsonSchema(msgspec.Struct):
    schema_: dict[str, Any] | None = msgspec.field(default=None, name="schema")
    name: str | None = None
    strict: bool | None = None


class ResponseFormat(msgspec.Struct):
    type: str
    json_schema: JsonSchema | None = None


class StructuredOutputs(msgspec.Struct, forbid_unknown_fields=True):
    """vLLM's field: one of these."""

    json: dict[str, Any] | None = None
    regex: str | None = None
    choice: list[str] | None = None
    grammar: str | None = None
    json_object: bool | None = None


class ChatBody(DecodingFields, kw_only=True):
    """Other fields are refused (`unserved.py`) or change nothing."""

    messages: Annotated[list[ChatMessage], Meta(min_length=1, max_length=MAX_MESSAGES)]
    model: str | None = None
    max_tokens: Count | None = None
    max_completion_tokens: Count | None = None
    n: ChoiceCount | None = None
    stop: str | list[str] | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    timings_per_token: bool | None = None  # llama.cpp's: timings in every chunk
    prediction: Prediction | None = None
    tools: Annotated[list[dict[str, Any]], Meta(max_length=MAX_TOOLS)] | None = None
    tool_choice: str | dict[str, Any] | None = None
    parallel_tool_calls: bool | None = None  # counts where a call is forced
    reasoning_effort: Effort | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    # vLLM's: whether a trailing assistant message is continued, as it always is here
    continue_final_message: bool | None = None
    add_generation_prompt: bool | None = None
    metadata: Any = None
    client_metadata: Any = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Meta(ge=0, le=20)] | None = None
    response_format: ResponseFormat | None = None
    structured_outputs: StructuredOutputs | None = None
    # older names for parts of it
    guided_json: dict[str, Any] | None = None
    guided_regex: str | None = None
    guided_choice: list[str] | None = None
    guided_grammar: str | None = None
