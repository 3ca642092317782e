"""What the model wrote in its latest tool calls, to show it the same again.

Agents parse a call and write it anew. Claude Code also puts the defaults of the tool's schema into
it, in front of what the model wrote, so that the next prompt would differ from what is computed
already. A call that means the same is shown as the model wrote it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import msgspec

from services.gateway.conversation import Call, Conversation
from services.gateway.output.events import CallArguments, CallEnd, CallStart, Event

MOST_CHARACTERS = 16 << 20  # of all arguments together


class CallMemory:
    """Arguments by the key in a call's id, which is random: nobody can ask for another's."""

    def __init__(self, most_characters: int = MOST_CHARACTERS) -> None:
        self._most_characters = most_characters
        self._characters = 0
        self._calls: dict[str, tuple[str, str]] = {}  # key -> name, JSON text; the oldest first

    def keep(self, key: str, name: str, arguments: str) -> None:
        """The oldest calls make room."""
        self._calls[key] = (name, arguments)
        self._characters += len(arguments)
        while self._characters > self._most_characters:
            oldest = next(iter(self._calls))
            self._characters -= len(self._calls.pop(oldest)[1])

    def restore(self, conversation: Conversation) -> Conversation:
        """The conversation, with the model's own arguments wherever the client's mean the same."""
        parameters = {
            tool["function"]["name"]: tool["function"].get("parameters")
            for tool in conversation.tools
        }
        turns = tuple(
            replace(turn, calls=tuple(self._restored(call, parameters) for call in turn.calls))
            if turn.calls
            else turn
            for turn in conversation.turns
        )
        return replace(conversation, turns=turns)

    def _restored(self, call: Call, parameters: Mapping[str, Any]) -> Call:
        name, said = self._calls.get(call.call_id.rpartition("_")[2], (None, ""))
        if name != call.name or said == call.arguments:
            return call
        if not _means_the_same(call.arguments, said, _defaults(parameters.get(call.name))):
            return call
        return replace(call, arguments=said)


class CallListener:
    """Keeps the whole calls of one answer."""

    def __init__(self, memory: CallMemory) -> None:
        self._memory = memory
        self._key, self._name = "", ""
        self._pieces: list[str] = []

    def hear(self, events: Sequence[Event]) -> None:
        for event in events:
            match event:
                case CallStart(key=key, name=name):
                    self._key, self._name, self._pieces = key, name, []
                case CallArguments(text=text):
                    self._pieces.append(text)
                case CallEnd(complete=True):
                    self._memory.keep(self._key, self._name, "".join(self._pieces))


def _means_the_same(sent: str | dict[str, Any], said: str, defaults: Mapping[str, Any]) -> bool:
    """Whether `sent` is `said`, in any order, with nothing but defaults added."""
    try:
        given = msgspec.json.decode(sent) if isinstance(sent, str) else sent
        written = msgspec.json.decode(said)
        if not isinstance(given, dict) or not isinstance(written, dict):
            return False
        whole = {name: defaults[name] for name in given if name in defaults} | written
        return _spelled(given) == _spelled(whole)
    except (ValueError, RecursionError, OverflowError):  # no JSON, or too deep: as the client sent
        return False


def _spelled(value: dict[str, Any]) -> bytes:
    """One spelling for one value, in which `true` is not 1."""
    return msgspec.json.encode(value, order="sorted")


def _defaults(schema: Any) -> dict[str, Any]:
    """Of the parameters that have one."""
    properties = schema.get("properties") if isinstance(schema, dict) else None
    if not isinstance(properties, dict):
        return {}
    return {
        name: one["default"]
        for name, one in properties.items()
        if isinstance(one, dict) and "default" in one
    }
