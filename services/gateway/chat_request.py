"""The body of a chat completion, strictly parsed: every refusal names its field."""

import re
import secrets
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from shared.errors import BadParameter, ModelNotFound
from shared.messages import Sampling
from shared.template import Message

MAX_MESSAGES = 10_000
MAX_STOPS = 16
MAX_STOP_CHARACTERS = 256
ROLES = {"developer": "system", "function": "tool"}


class Part(msgspec.Struct):
    type: str
    text: str | None = None


class ChatMessage(msgspec.Struct):
    role: str
    content: str | list[Part] | None = None
    tool_calls: list[dict[str, Any]] | None = None
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
    tools: list[dict[str, Any]] | None = None
    tool_choice: str | dict[str, Any] | None = None
    n: int | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = None
    logit_bias: dict[str, float] | None = None
    presence_penalty: Penalty | None = None
    frequency_penalty: Penalty | None = None
    response_format: ResponseFormat | None = None


def parse(body: bytes) -> ChatBody:
    """Raises BadParameter: not JSON, a wrong type, or a number out of range."""
    try:
        return msgspec.json.decode(body, type=ChatBody)
    except msgspec.ValidationError as exc:
        where = re.search(r" - at `\$\.?(.*?)`$", str(exc))
        missing = re.search(r"missing required field `(\w+)`", str(exc))
        param = where.group(1) if where else missing.group(1) if missing else None
        raise BadParameter(str(exc).replace("`$.", "`"), param=param) from exc
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as exc:
        raise BadParameter(f"the body is not JSON: {exc}") from exc


def refuse_unbuilt(body: ChatBody, *, renders_tools: bool) -> None:
    """Refuses what would otherwise be silently lost. Raises BadParameter."""
    lost = {
        "n": body.n not in (None, 1),
        "logprobs": bool(body.logprobs),
        "top_logprobs": bool(body.top_logprobs),
        "logit_bias": bool(body.logit_bias),
        "presence_penalty": bool(body.presence_penalty),
        "frequency_penalty": bool(body.frequency_penalty),
        "response_format": body.response_format is not None and body.response_format.type != "text",
    }
    for field, asked in lost.items():
        if asked:
            raise BadParameter(f"{field} is not supported by this server yet", param=field)
    if body.tools and not renders_tools and body.tool_choice != "none":
        raise BadParameter("this model's chat template cannot show tools", param="tools")
    if body.tool_choice not in (None, "none", "auto"):
        raise BadParameter("tool_choice may be auto or none", param="tool_choice")


def check_model(body: ChatBody, served: str) -> None:
    if body.model not in (None, served):
        raise ModelNotFound(
            f"The model '{body.model}' does not exist; this server has '{served}'", param="model"
        )


def messages_of(body: ChatBody) -> list[Message]:
    """For the template: known roles, string contents, leading system messages merged."""
    messages: list[Message] = []
    for index, message in enumerate(body.messages):
        role = ROLES.get(message.role, message.role)
        if role not in ("system", "user", "assistant", "tool"):
            raise BadParameter(f"unknown role '{message.role}'", param=f"messages[{index}].role")
        content = text_of(message.content, f"messages[{index}].content")
        if role == "system" and len(messages) == 1 and messages[0]["role"] == "system":
            messages[0]["content"] += f"\n\n{content}"
            continue
        entry: Message = {"role": role, "content": content}
        if message.tool_calls:
            entry["tool_calls"] = message.tool_calls
        if message.tool_call_id:
            entry["tool_call_id"] = message.tool_call_id
        messages.append(entry)
    return messages


def tool_texts_of(body: ChatBody) -> tuple[str, ...]:
    """Every text part of every tool message, as the client sent it."""
    texts = []
    for message in body.messages:
        if ROLES.get(message.role, message.role) != "tool":
            continue
        if isinstance(message.content, str):
            texts.append(message.content)
        else:
            texts += [part.text for part in message.content or () if part.text]
    return tuple(texts)


def text_of(content: str | list[Part] | None, param: str) -> str:
    if content is None or isinstance(content, str):
        return content or ""
    texts = []
    for part in content:
        if part.type not in ("text", "input_text", "output_text") or part.text is None:
            raise BadParameter(f"only text parts are served, not '{part.type}'", param=param)
        texts.append(part.text)
    return "".join(texts)


def stops_of(body: ChatBody) -> tuple[str, ...]:
    stops = (body.stop,) if isinstance(body.stop, str) else tuple(body.stop or ())
    if len(stops) > MAX_STOPS or any(not 0 < len(s) <= MAX_STOP_CHARACTERS for s in stops):
        raise BadParameter(
            f"stop takes up to {MAX_STOPS} strings of 1 to {MAX_STOP_CHARACTERS} characters",
            param="stop",
        )
    return stops


def predicted_of(body: ChatBody) -> str | None:
    if body.prediction is None:
        return None
    if body.prediction.type != "content":
        raise BadParameter("prediction.type must be 'content'", param="prediction.type")
    return text_of(body.prediction.content, "prediction.content")


def sampling_of(body: ChatBody, defaults: Sampling) -> Sampling:
    seed = secrets.randbits(64) if body.seed is None else body.seed % 2**64
    chosen = {name: getattr(body, name) for name in ("temperature", "top_p", "top_k", "min_p")}
    given = {name: value for name, value in chosen.items() if value is not None}
    return msgspec.structs.replace(defaults, seed=seed, **given)
