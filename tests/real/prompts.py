"""Prompts whose answers copy, in the ways that agents make a model copy, and some that do not."""

from dataclasses import dataclass
from typing import Any

from bench.texts import CONFIG, INVENTORY

WEATHER = """The harbour of Elmsworth lies open to the north, and its fishermen have learned to read
the sky before they trust the sea. When the gulls fly inland and the hills across the bay seem close
enough to touch, the older men pull their boats above the weed line and tie them twice. A storm will
come before the evening bell, they say, and most of the time they are right. The younger men laugh,
but they too count the gulls, and they too keep a second rope under the thwart of every boat.
"""

CITIES = "\n".join(
    f"{number}. {city} - {river}"
    for number, (city, river) in enumerate(
        [
            ("Vienna", "Danube"),
            ("Paris", "Seine"),
            ("London", "Thames"),
            ("Rome", "Tiber"),
            ("Cairo", "Nile"),
            ("Prague", "Vltava"),
            ("Lisbon", "Tagus"),
            ("Warsaw", "Vistula"),
            ("Cologne", "Rhine"),
            ("Dresden", "Elbe"),
        ],
        start=1,
    )
)


@dataclass(frozen=True)
class Prompt:
    name: str
    messages: list[dict[str, Any]]
    copies: bool  # the answer must show accepted copies


def numbered(text: str) -> str:
    return "\n".join(f"{n}\t{line}" for n, line in enumerate(text.split("\n"), start=1))


def _head(text: str, lines: int) -> str:
    """Without the last newline, which the tokenizer joins with the indentation behind it."""
    return "".join(text.splitlines(keepends=True)[:lines]).rstrip("\n")


def _continued(ask: str, text: str, lines: int) -> list[dict[str, Any]]:
    """The text in the question; its first lines prefilled as the answer's beginning."""
    return [
        {"role": "user", "content": f"{ask}\n\n{text}"},
        {"role": "assistant", "content": _head(text, lines)},
    ]


def _from_tool(text: str, lines: int) -> list[dict[str, Any]]:
    return [
        {"role": "user", "content": "Read the file and write it again without line numbers."},
        {"role": "tool", "content": numbered(text), "tool_call_id": "call_1"},
        {"role": "assistant", "content": _head(text, lines)},
    ]


PROMPTS = [
    Prompt("file_copy", _continued("Repeat this file exactly.", INVENTORY, 8), True),
    Prompt("file_copy_late", _continued("Repeat this file exactly.", INVENTORY, 18), True),
    Prompt("prose_copy", _continued("Repeat this text word for word.", WEATHER, 2), True),
    Prompt("config_copy", _continued("Repeat this file exactly.", CONFIG, 5), True),
    Prompt("list_copy", _continued("Repeat this list exactly.", CITIES, 4), True),
    Prompt("numbered_code", _from_tool(INVENTORY, 10), True),
    Prompt("numbered_config", _from_tool(CONFIG, 6), True),
    Prompt("numbered_prose", _from_tool(WEATHER, 2), True),
    Prompt(
        "list_continuation",
        [
            {"role": "user", "content": "Count upwards, one item a line."},
            {"role": "assistant", "content": "item 1\nitem 2\nitem 3\nitem 4\n"},
        ],
        False,
    ),
    Prompt(
        "fruits", [{"role": "user", "content": "Name three fruits and why you like them."}], False
    ),
    Prompt("story", [{"role": "user", "content": "Tell a short story about a fox."}], False),
    Prompt("question", [{"role": "user", "content": "Why is the sky blue?"}], False),
    Prompt(
        "function",
        [{"role": "user", "content": "Write a Python function that reverses a string."}],
        False,
    ),
]
