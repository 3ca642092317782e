"""Outputs through a parser, and what comes out in short."""

import json
from collections.abc import Iterable
from typing import Any

from services.gateway.output.choice import ToolParser, parser_for
from services.gateway.output.events import (
    CallArguments,
    CallEnd,
    CallStart,
    Content,
    Event,
    Reasoning,
    merged,
)

PARAMETERS: dict[str, Any] = {
    "type": "object",
    "properties": {
        "path": {"type": "string"},
        "text": {"type": "string"},
        "count": {"type": "integer"},
        "deep": {"type": "object"},
        "list": {"$ref": "#/$defs/names"},
        "flag": {"type": "boolean"},
        "maybe": {"anyOf": [{"type": "string"}, {"type": "null"}]},
        "mode": {"enum": ["a", "b"]},
        "any": {},
        "either": {"oneOf": [{"type": "string"}, {"type": "array"}]},
    },
    "$defs": {"names": {"type": "array"}},
}


def tool(name: str) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "parameters": PARAMETERS}}


TOOLS = [tool("edit"), tool("read")]


def parse(
    pieces: Iterable[str],
    dialect: ToolParser,
    *,
    thinks: bool = True,
    opens_thinking: bool = False,
) -> list[Event]:
    parser = parser_for(dialect, TOOLS, thinks=thinks, opens_thinking=opens_thinking)
    events: list[Event] = []
    for piece in pieces:
        events += parser.feed(piece)
    return merged([*events, *parser.finish()])


def short(events: list[Event]) -> list[Any]:
    """("think", text), ("say", text), ("call", name, arguments as a value, complete)."""
    found: list[Any] = []
    for event in events:
        match event:
            case Reasoning(text):
                found.append(("think", text))
            case Content(text):
                found.append(("say", text))
            case CallStart(_, name):
                found.append(["call", name, ""])
            case CallArguments(text):
                found[-1][2] += text
            case CallEnd(complete):
                _, name, arguments = found[-1]
                found[-1] = ("call", name, json.loads(arguments), complete)
    return found


def read(text: str, dialect: ToolParser, **options: Any) -> list[Any]:
    """The same in one piece and character by character, or it fails."""
    whole = short(parse([text], dialect, **options))
    assert short(parse(text, dialect, **options)) == whole
    return whole


def call(name: str, *, complete: bool = True, **arguments: Any) -> Any:
    return ("call", name, arguments, complete)
