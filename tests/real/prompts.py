"""Prompts whose answers copy, in the ways that agents make a model copy, and some that do not."""

from dataclasses import dataclass
from typing import Any

INVENTORY = '''import json
from pathlib import Path


class Inventory:
    """Keeps the stock of a small shop in one JSON file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.items: dict[str, int] = {}

    def load(self) -> None:
        if self.path.exists():
            self.items = json.loads(self.path.read_text())

    def save(self) -> None:
        self.path.write_text(json.dumps(self.items, indent=2))

    def add(self, name: str, count: int) -> None:
        if count < 0:
            raise ValueError("count must not be negative")
        self.items[name] = self.items.get(name, 0) + count

    def remove(self, name: str, count: int) -> None:
        if self.items.get(name, 0) < count:
            raise KeyError(name)
        self.items[name] -= count

    def total(self) -> int:
        return sum(self.items.values())
'''

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

CONFIG = """server:
  host: 127.0.0.1
  port: 8080
  workers: 4
database:
  url: postgres://localhost/shop
  pool_size: 10
  timeout_seconds: 30
logging:
  level: info
  file: /var/log/shop.log
  rotate_days: 7
features:
  search: true
  export: false
"""


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
