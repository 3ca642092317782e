"""What a chat body means, and what of it this server cannot do."""

import secrets
from typing import Any

import msgspec

from services.gateway.chat_body import ChatBody, ChatMessage, Part, ToolCall
from shared.errors import BadParameter
from shared.messages import Sampling
from shared.template import Message

MAX_DEPTH = 64  # of the JSON in tools and tool calls
MAX_STOPS = 16
MAX_STOP_CHARACTERS = 256
ROLES = {"developer": "system", "function": "tool"}


# Refused whenever they hold anything: to ignore one would silently change what was asked for.
UNBUILT = (
    "logprobs",
    "top_logprobs",
    "logit_bias",
    "presence_penalty",
    "frequency_penalty",
    "audio",
    "functions",
    "chat_template",
    "grammar",
    "json_schema",
    "guided_json",
    "guided_regex",
    "guided_choice",
    "guided_grammar",
    "structured_outputs",
)


def refuse_unbuilt(body: ChatBody, *, renders_tools: bool) -> None:
    """Refuses what would otherwise be silently lost. Raises BadParameter."""
    lost = [name for name in UNBUILT if getattr(body, name)]
    if body.n not in (None, 1):
        lost.append("n")
    if body.response_format is not None and body.response_format.type != "text":
        lost.append("response_format")
    if set(body.modalities or ()) - {"text"}:
        lost.append("modalities")
    if lost:
        raise BadParameter(f"{lost[0]} is not supported by this server", param=lost[0])
    if body.tools and not renders_tools and body.tool_choice != "none":
        raise BadParameter("this model's chat template cannot show tools", param="tools")
    if not _is_shallow(body.tools):
        raise BadParameter(f"tools is nested deeper than {MAX_DEPTH} levels", param="tools")
    if body.tool_choice not in (None, "none", "auto"):
        raise BadParameter("tool_choice may be auto or none", param="tool_choice")


def describe(body: ChatBody) -> dict[str, Any]:
    """For the log: counts and switches, no text."""
    choice = body.tool_choice if isinstance(body.tool_choice, str) else None
    return {
        "stream": bool(body.stream),
        "message_count": len(body.messages),
        "tool_count": len(body.tools or ()),
        "tool_choice": choice if choice in ("none", "auto", "required") else None,
        "has_tool_history": any(m.tool_calls or _role(m) == "tool" for m in body.messages),
        "has_prediction": body.prediction is not None,
        "stop_count": 1 if isinstance(body.stop, str) else len(body.stop or ()),
    }


def _role(message: ChatMessage) -> str:
    return ROLES.get(message.role, message.role)


def messages_of(body: ChatBody) -> list[Message]:
    """For the template: known roles, string contents, leading system messages merged."""
    messages: list[Message] = []
    for index, message in enumerate(body.messages):
        role = _role(message)
        if role not in ("system", "user", "assistant", "tool"):
            raise BadParameter(f"unknown role '{message.role}'", param=f"messages[{index}].role")
        content = text_of(message.content, f"messages[{index}].content")
        if role == "system" and len(messages) == 1 and messages[0]["role"] == "system":
            messages[0]["content"] += f"\n\n{content}"
            continue
        entry: Message = {"role": role, "content": content}
        if message.tool_calls:
            entry["tool_calls"] = _tool_calls_of(message.tool_calls, f"messages[{index}]")
        if message.tool_call_id:
            entry["tool_call_id"] = message.tool_call_id
        messages.append(entry)
    return messages


def _tool_calls_of(calls: list[ToolCall], where: str) -> list[dict[str, Any]]:
    """As templates read them: arguments are a mapping if their JSON is one, else as they came."""
    shown = []
    for call in calls:
        arguments: Any = call.function.arguments or {}
        if isinstance(arguments, str):
            try:
                parsed = msgspec.json.decode(arguments)
            except (msgspec.DecodeError, RecursionError, UnicodeError):
                parsed = arguments
            arguments = parsed if isinstance(parsed, dict) else arguments
        if not _is_shallow(arguments):
            raise BadParameter(
                f"arguments are nested deeper than {MAX_DEPTH} levels", param=f"{where}.tool_calls"
            )
        function = {"name": call.function.name, "arguments": arguments}
        shown.append({"id": call.id or "", "type": "function", "function": function})
    return shown


def tool_texts_of(body: ChatBody) -> tuple[str, ...]:
    """Every text part of every tool message, as the client sent it."""
    texts = []
    for message in body.messages:
        if _role(message) != "tool":
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


def _is_shallow(value: Any) -> bool:
    """Nested at most MAX_DEPTH levels: what comes after recurses once a level."""
    level = [value]
    for _ in range(MAX_DEPTH):
        inner = [v.values() if isinstance(v, dict) else v for v in level]
        level = [x for items in inner if not isinstance(items, _SCALARS) for x in items]
        if not level:
            return True
    return False


_SCALARS = (str, int, float, type(None))
