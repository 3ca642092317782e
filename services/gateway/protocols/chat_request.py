"""What a chat body means, and what of it this server cannot do."""

from typing import Any

from services.gateway.conversation import Call, Conversation, Role, Turn
from services.gateway.depth import check_depth
from services.gateway.effort import template_options
from services.gateway.protocols.chat_body import ChatBody, ChatMessage, Part, ToolCall
from services.gateway.protocols.decoding import (
    check_stops,
    check_template_options,
    check_tool_name,
    decode,
)
from services.gateway.protocols.decoding_fields import sampling_of, stops_of, wishes_of
from services.gateway.protocols.structured import grammar_of
from services.gateway.protocols.tool_choice import forced_calls, shown_choice
from services.gateway.protocols.unseen import unseen
from services.gateway.protocols.unserved import CHAT, Unserved
from services.gateway.request import Request
from services.gateway.wishes import Wishes
from shared.errors import BadParameter

ROLES: dict[str, Role] = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "assistant": "assistant",
    "tool": "tool",
    "function": "tool",
}
_unserved = Unserved("chat", CHAT)


def parse(raw: bytes) -> Request:
    """Raises BadParameter, which names the field."""
    body = decode(raw, ChatBody)
    _unserved.refuse(raw)
    _check_choices(body)
    turns = tuple(_turn(message, f"messages[{i}]") for i, message in enumerate(body.messages))
    check_depth(body.tools, "tools", "tools")
    tools = () if body.tool_choice == "none" else tuple(body.tools or ())
    _check_tools(tools)
    return Request(
        body=body,
        prompt=Conversation(turns, tools),
        described=_describe(body),
        model=body.model,
        stream=bool(body.stream),
        max_tokens=body.max_completion_tokens or body.max_tokens,
        sampling=sampling_of(body),
        seed=body.seed,
        choices=body.n or 1,
        stops=check_stops(stops_of(body.stop), "stop"),
        predicted=_predicted_of(body),
        wishes=_wishes_of(body),
        template_options=template_options(body.reasoning_effort)
        | check_template_options(body.chat_template_kwargs),
        client_metadata=body.client_metadata,
        metadata=body.metadata,
    )


def _wishes_of(body: ChatBody) -> Wishes:
    """Raises BadParameter."""
    if body.top_logprobs and not body.logprobs:
        raise BadParameter("top_logprobs needs logprobs: true", param="top_logprobs")
    return wishes_of(
        body,
        effort=body.reasoning_effort,
        grammar=grammar_of(body),
        forced_calls=forced_calls(body.tool_choice, body.parallel_tool_calls),
        top_logprobs=(body.top_logprobs or 0) if body.logprobs else None,
    )


def text_of(content: str | list[Part] | None, param: str) -> str:
    """Raises BadParameter: a part that is no text."""
    return "".join(_parts(content, param))


def _check_choices(body: ChatBody) -> None:
    """Refuses what this server does otherwise. Raises BadParameter."""
    last = body.messages[-1]
    continues = last.role == "assistant" and not _calls(last)
    if body.continue_final_message not in (None, continues):
        raise BadParameter(
            "a trailing assistant message without tool calls is continued, and nothing else is",
            param="continue_final_message",
        )
    if body.add_generation_prompt not in (None, not continues):
        raise BadParameter(
            "an answer begins anew unless a trailing assistant message is continued",
            param="add_generation_prompt",
        )


def _check_tools(tools: tuple[dict[str, Any], ...]) -> None:
    names: set[str] = set()
    for index, tool in enumerate(tools):
        where = f"tools[{index}]"
        if tool.get("type", "function") != "function":
            raise BadParameter("only tools of type function are served", param=f"{where}.type")
        function = tool.get("function")
        if not isinstance(function, dict) or not isinstance(function.get("name"), str):
            raise BadParameter("a tool needs a function with a name", param=f"{where}.function")
        check_tool_name(function["name"], f"{where}.function.name", names)


def _describe(body: ChatBody) -> dict[str, Any]:
    return {
        "stream": bool(body.stream),
        "message_count": len(body.messages),
        "tool_count": len(body.tools or ()),
        "tool_choice": shown_choice(body.tool_choice),
        "has_tool_history": any(m.tool_calls or ROLES.get(m.role) == "tool" for m in body.messages),
        "has_prediction": body.prediction is not None,
        "stop_count": 1 if isinstance(body.stop, str) else len(body.stop or ()),
    }


def _turn(message: ChatMessage, where: str) -> Turn:
    role = ROLES.get(message.role)
    if role is None:
        raise BadParameter(f"unknown role '{message.role}'", param=f"{where}.role")
    parts = _parts(message.content, f"{where}.content", is_result=role == "tool")
    text = "".join(parts)
    if role == "tool":
        kept = tuple(part for part in parts if part)
        return Turn(role, text, call_id=message.tool_call_id, parts=kept)
    if role != "assistant":
        return Turn(role, text)
    calls = [Call(c.id or "", c.function.name, c.function.arguments or "") for c in _calls(message)]
    reasoning = (message.reasoning_content, message.reasoning, message.reasoning_text)
    thought = next((text for text in reasoning if isinstance(text, str) and text), "")
    return Turn(role, text, reasoning=thought, calls=tuple(calls))


def _calls(message: ChatMessage) -> list[ToolCall]:
    if message.function_call is not None and not message.tool_calls:
        return [ToolCall(message.function_call)]
    return message.tool_calls or []


def _parts(content: str | list[Part] | None, param: str, *, is_result: bool = False) -> list[str]:
    if content is None or isinstance(content, str):
        return [content or ""]
    return [_part(part, f"{param}[{i}]", is_result=is_result) for i, part in enumerate(content)]


def _part(part: Part, param: str, *, is_result: bool) -> str:
    if part.type in ("text", "input_text", "output_text") and part.text is not None:
        return part.text
    if part.type == "refusal" and part.refusal is not None:
        return part.refusal
    if is_result:
        return unseen(part.type)
    if part.type == "text":
        raise BadParameter("a text part needs a text", param=f"{param}.text")
    raise BadParameter(f"only text parts are served, not '{part.type}'", param=param)


def _predicted_of(body: ChatBody) -> str | None:
    if body.prediction is None:
        return None
    if body.prediction.type != "content":
        raise BadParameter("prediction.type must be 'content'", param="prediction.type")
    return text_of(body.prediction.content, "prediction.content")
