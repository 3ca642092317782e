"""The body of Anthropic's Messages."""

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from services.gateway.protocols.decoding import (
    MAX_MESSAGES,
    MAX_TOOLS,
    Count,
    Share,
    Temperature,
    TopK,
    TopP,
)
from services.gateway.protocols.ninfer_options import NinferOptions
from services.gateway.protocols.responses_body import Format


class Source(msgspec.Struct):
    type: str | None = None
    data: str | None = None


class Block(msgspec.Struct):
    """One block of any type; which fields count depends on it."""

    type: str
    text: str | None = None
    thinking: str | None = None
    id: str | None = None
    name: str | None = None
    input: Any = None
    tool_use_id: str | None = None
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


class Thinking(msgspec.Struct):
    type: str
    budget_tokens: Count | None = None


class OutputConfig(msgspec.Struct):
    format: Format | None = None


class MessagesBody(msgspec.Struct):
    """Fields that are not here are known to be harmless, or unknown, and are ignored."""

    messages: Annotated[list[Message], Meta(min_length=1, max_length=MAX_MESSAGES)]
    model: str | None = None
    max_tokens: Count | None = None
    system: str | list[Block] | None = None
    stream: bool | None = None
    stop_sequences: list[str] | None = None
    temperature: Temperature | None = None
    top_p: TopP | None = None
    top_k: TopK | None = None
    min_p: Share | None = None
    seed: int | None = None
    tools: Annotated[list[dict[str, Any]], Meta(max_length=MAX_TOOLS)] | None = None
    tool_choice: ToolChoice | None = None
    thinking: Thinking | None = None
    output_config: OutputConfig | None = None
    output_format: Format | None = None  # the older name
    mcp_servers: list[Any] | None = None
    metadata: Any = None
    ninfer: NinferOptions | None = None
