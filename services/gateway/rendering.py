"""A conversation as this model's template can show it.

Templates differ in what they refuse: a system message that is not the first, a history without a
user, arguments that are not an object. What one cannot show is said in a way that it can.
"""

from typing import Any

import msgspec

from services.gateway.conversation import Call, Conversation, Turn
from services.gateway.depth import check_depth
from shared.template import Abilities, Message


def messages_of(conversation: Conversation, abilities: Abilities) -> list[Message]:
    """Leading system messages merged, later ones demoted where the template wants that.

    Raises:
        BadParameter: arguments are nested too deep.
    """
    turns = _merge_leading(conversation.turns)
    messages = [
        _message(turn, abilities, index > 0 and not abilities.late_system)
        for index, turn in enumerate(turns)
    ]
    if abilities.needs_user and not any(m["role"] == "user" for m in messages):
        after_system = 1 if messages and messages[0]["role"] == "system" else 0
        messages.insert(after_system, {"role": "user", "content": ""})
    return messages


def reminder(text: str) -> str:
    """A system message in the middle, in the form that agents themselves use in user turns."""
    return f"<system-reminder>\n{text}\n</system-reminder>"


def _merge_leading(turns: tuple[Turn, ...]) -> list[Turn]:
    leading = 0
    while leading < len(turns) and turns[leading].role == "system":
        leading += 1
    if leading < 2:
        return list(turns)
    text = "\n\n".join(turn.text for turn in turns[:leading])
    return [Turn("system", text), *turns[leading:]]


def _message(turn: Turn, abilities: Abilities, demote_system: bool) -> Message:
    if turn.role == "system" and demote_system:
        return {"role": "user", "content": reminder(turn.text)}
    message: Message = {"role": turn.role, "content": turn.text}
    if turn.reasoning:
        message["reasoning_content"] = turn.reasoning
    calls = []
    for call in turn.calls:
        arguments = _arguments_of(call)
        if isinstance(arguments, str) and not abilities.raw_arguments:
            # shown as the text that it is, since this template takes only objects
            said = f"<tool_call>\n{call.name}\n{arguments}\n</tool_call>"
            message["content"] = "\n".join(filter(None, (message["content"], said)))
            continue
        function = {"name": call.name, "arguments": arguments}
        calls.append({"id": call.call_id, "type": "function", "function": function})
    if calls:
        message["tool_calls"] = calls
    if turn.call_id:
        message["tool_call_id"] = turn.call_id
    return message


def _arguments_of(call: Call) -> str | dict[str, Any]:
    """A mapping if their JSON is one, else as they came."""
    arguments: Any = call.arguments or {}
    if isinstance(arguments, str):
        try:
            arguments = msgspec.json.decode(arguments)
        except (msgspec.DecodeError, RecursionError, UnicodeError):
            arguments = call.arguments
    check_depth(arguments, f"the arguments of a call of '{call.name}'", "tool_calls")
    return arguments if isinstance(arguments, dict) else call.arguments
