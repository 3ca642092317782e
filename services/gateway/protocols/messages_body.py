"""The body of Anthropic's Messages."""

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from services.gateway.effort import Effort
from services.gateway.protocols.decoding import MAX_MESSAGES, MAX_TOOLS, Count
from services.gateway.protocols.decoding_fields import DecodingFields
from services.gateway.protocols.responses_body import Format


class Source(msgspec.Struct):
    type: str | None = None
    data: str | None = None
    content: "str | list[Block] | None" = None


class Block(msgspec.Struct):
    """One block of any type; which fields count depends on it."""

    type: str
    text: str | None = None
    thinking: str | None = None
    id: str | None = None
    name: str | None = None
    input: Any = None
    tool_use_id: str | None = None
    is_error: bool | None = None
    tool_name: str | None = None
    title: str | None = None
    content: "str | list[Block] | None" = None
    source: Source | str | None = None


# Where blocks of other kinds (server tools, searches) hold something else in `content`.
class OpaqueBlock(msgspec.Struct):
    type: str


class Message(msgspec.Struct):
    role: str
    content: str | list[dict[str, Any]] = ""


class ToolChoice(msgspec.Struct):
    type: str
    name: str | None = None
    disable_parallel_tool_use: bool | None = None  # counts where a call is forced


class Thinking(msgspec.Struct):
    type: str
    budget_tokens: Count | None = None


class OutputConfig(msgspec.Struct):
    effort: Effort | None = None
    format: Format | None = None


class MessagesBody(DecodingFields, kw_only=True):
    """Other fields are refused (`unserved.py`) or change nothing."""

    messages: Annotated[list[Message], Meta(min_length=1, max_length=MAX_MESSAGES)]
    model: str | None = None
    max_tokens: Count | None = None
    system: str | list[Block] | None = None
    stream: bool | None = None
    stop_sequences: list[str] | None = None
    tools: Annotated[list[dict[str, Any]], Meta(max_length=MAX_TOOLS)] | None = None
    tool_choice: ToolChoice | None = None
    thinking: Thinking | None = None
    output_config: OutputConfig | None = None
    output_format: Format | None = None  # the older name
    metadata: Any = None
