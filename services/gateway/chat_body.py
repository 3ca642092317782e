"""The body of a chat completion, strictly parsed: every refusal names its field."""

import json
import re
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from shared.errors import BadParameter

MAX_MESSAGES = 10_000
MAX_TOOLS = 1024


class Part(msgspec.Struct):
    type: str
    text: str | None = None


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
    tool_call_id: str | None = None
    name: str | None = None


class StreamOptions(msgspec.Struct):
    include_usage: bool | None = None


class Prediction(msgspec.Struct):
    type: str
    content: str | list[Part]


class ResponseFormat(msgspec.Struct):
    type: str


Temperature = Annotated[float, Meta(ge=0, le=100)]
Share = Annotated[float, Meta(ge=0, le=1)]
Count = Annotated[int, Meta(ge=1)]
Penalty = Annotated[float, Meta(ge=-2, le=2)]


class ChatBody(msgspec.Struct):
    """Fields that are not here are known to be harmless, or unknown, and are ignored."""

    messages: Annotated[list[ChatMessage], Meta(min_length=1, max_length=MAX_MESSAGES)]
    model: str | None = None
    max_tokens: Count | None = None
    max_completion_tokens: Count | None = None
    temperature: Temperature | None = None
    top_p: Annotated[float, Meta(gt=0, le=1)] | None = None
    top_k: Annotated[int, Meta(ge=0, le=1_000_000)] | None = None
    min_p: Share | None = None
    seed: int | None = None
    stop: str | list[str] | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    prediction: Prediction | None = None
    tools: Annotated[list[dict[str, Any]], Meta(max_length=MAX_TOOLS)] | None = None
    tool_choice: str | dict[str, Any] | None = None
    n: int | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = None
    logit_bias: dict[str, float] | None = None
    presence_penalty: Penalty | None = None
    frequency_penalty: Penalty | None = None
    response_format: ResponseFormat | None = None
    modalities: list[str] | None = None
    audio: Any = None
    functions: Any = None  # the form before tools
    chat_template: Any = None  # templates come from the model's folder only
    grammar: Any = None
    json_schema: Any = None
    guided_json: Any = None
    guided_regex: Any = None
    guided_choice: Any = None
    guided_grammar: Any = None
    structured_outputs: Any = None


def parse(body: bytes) -> ChatBody:
    """Raises BadParameter: not JSON, a wrong type, or a number out of range."""
    try:
        return msgspec.json.decode(body, type=ChatBody)
    except msgspec.ValidationError as exc:
        raise BadParameter(str(exc).replace("`$.", "`"), param=_blamed(str(exc))) from exc
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as exc:
        param = _non_finite_field(body)
        if param is not None:
            raise BadParameter(f"{param} holds a number that is not finite", param=param) from exc
        raise BadParameter(f"the body is not JSON: {exc}") from exc


def _blamed(message: str) -> str | None:
    """The path of the field that msgspec complains about."""
    where = re.search(r" - at `\$\.?(.*?)`$", message)
    missing = re.search(r"missing required field `(\w+)`", message)
    path = [found.group(1) for found in (where, missing) if found]
    return ".".join(path) or None


def _non_finite_field(body: bytes) -> str | None:
    """The top-level field of a body that is JSON but for NaN or Infinity somewhere in it."""
    mark = object()

    def holds(value: Any) -> bool:
        if isinstance(value, dict | list):
            return any(map(holds, value.values() if isinstance(value, dict) else value))
        return value is mark

    try:
        fields = json.loads(body, parse_constant=lambda _: mark)
        if not isinstance(fields, dict):
            return None
        return next((name for name, value in fields.items() if holds(value)), None)
    except (ValueError, RecursionError):
        return None
