"""A conversation as every protocol means it, before a template shows it to the model."""

from dataclasses import dataclass
from typing import Any, Literal

import msgspec

Role = Literal["system", "user", "assistant", "tool"]


@dataclass(frozen=True)
class Call:
    """A tool call of the history."""

    call_id: str
    name: str
    # what the client sent: JSON text that should be an object, or the object itself
    arguments: str | dict[str, Any]


@dataclass(frozen=True)
class Turn:
    role: Role
    text: str
    reasoning: str = ""  # assistant
    calls: tuple[Call, ...] = ()  # assistant
    call_id: str | None = None  # tool: the call that it answers
    parts: tuple[str, ...] = ()  # tool: its texts one by one, as the client sent them


@dataclass(frozen=True)
class Conversation:
    turns: tuple[Turn, ...]
    # as templates take them: {"type": "function", "function": {"name", "parameters", ...}}
    tools: tuple[dict[str, Any], ...] = ()

    @property
    def tool_texts(self) -> tuple[str, ...]:
        """Every text part of every tool result, in order."""
        return tuple(part for turn in self.turns for part in turn.parts)

    @property
    def user_texts(self) -> tuple[str, ...]:
        return tuple(turn.text for turn in self.turns if turn.role == "user")

    @property
    def call_arguments(self) -> tuple[str, ...]:
        """JSON text, in order."""
        return tuple(
            call.arguments
            if isinstance(call.arguments, str)
            else msgspec.json.encode(call.arguments).decode()
            for turn in self.turns
            for call in turn.calls
        )


@dataclass(frozen=True)
class RawPrompt:
    """A prompt that no template shapes: text in which special tokens count, or token ids."""

    text: str | tuple[int, ...]
