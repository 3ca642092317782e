"""The body of OpenAI's Responses."""

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from services.gateway.effort import Effort
from services.gateway.protocols.decoding import MAX_MESSAGES, MAX_TOOLS, Count
from services.gateway.protocols.decoding_fields import DecodingFields

# What a response may hold beside its text. Encrypted reasoning is null, since the reasoning itself
# is there; the rest belongs to tools and inputs that never occur. Logprobs are not served.
Include = Literal[
    "reasoning.encrypted_content",
    "file_search_call.results",
    "web_search_call.results",
    "web_search_call.action.sources",
    "code_interpreter_call.outputs",
    "computer_call_output.output.image_url",
    "message.input_image.image_url",
]


class Format(msgspec.Struct):
    type: str
    schema_: Any = msgspec.field(default=None, name="schema")


class Text(msgspec.Struct):
    format: Format | None = None


class ReasoningOptions(msgspec.Struct):
    effort: Effort | None = None
    summary: str | None = None


class ResponsesBody(DecodingFields, kw_only=True):
    """Other fields are refused (`unserved.py`) or change nothing."""

    input: str | Annotated[list[dict[str, Any]], Meta(max_length=MAX_MESSAGES)]
    model: str | None = None
    instructions: str | None = None
    previous_response_id: str | None = None
    store: bool | None = None
    stream: bool | None = None
    max_output_tokens: Count | None = None
    stop: str | list[str] | None = None
    tools: Annotated[list[dict[str, Any]], Meta(max_length=MAX_TOOLS)] | None = None
    tool_choice: str | dict[str, Any] | None = None
    parallel_tool_calls: bool | None = None
    max_tool_calls: Count | None = None  # of built-in tools, of which none is called
    include: list[Include] | None = None
    reasoning: ReasoningOptions | None = None
    text: Text | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    metadata: dict[str, str] | None = None
    client_metadata: Any = None


class Part(msgspec.Struct):
    type: str
    text: str | None = None
    refusal: str | None = None
    filename: str | None = None


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
