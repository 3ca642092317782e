"""What the bench asks: conversations whose answers copy as agents' do, and one that does not.

A small model loses its way when it is asked to copy. So, unless `free`, a raw copy goes on inside a
third repetition that stands prefilled in the answer, and the other copies are held to their text by
a grammar of one choice (`held`). Either way the model draws every token itself, and drafts are kept
only where they equal its draws.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from bench.texts import CONFIG, INVENTORY

Message = dict[str, Any]

ASK_PROSE = "Explain in detail how a steam engine works and why it changed the world."
# Sampled: greedy, a small model soon repeats itself, and copies would speed that up.
SAMPLED: dict[str, Any] = {"temperature": 1.0, "seed": 7}
GREEDY: dict[str, Any] = {"temperature": 0}

# an insertion, a deletion and a changed line
EDITED = (
    INVENTORY.replace(
        "    def save(self)",
        "    def clear(self) -> None:\n        self.items.clear()\n\n    def save(self)",
    )
    .replace(
        '        if count < 0:\n            raise ValueError("count must not be negative")\n', ""
    )
    .replace("json.dumps(self.items, indent=2)", "json.dumps(self.items, sort_keys=True)")
)
AGAIN = EDITED.replace("raise KeyError(name)", 'raise LookupError(f"too few of {name}")').replace(
    "    def total(self)",
    "    def names(self) -> list[str]:\n        return sorted(self.items)\n\n    def total(self)",
)


@dataclass(frozen=True)
class Turn:
    """One request."""

    name: str
    messages: list[Message]
    sampling: dict[str, Any] = field(default_factory=lambda: GREEDY)
    held: str | None = None  # the answer is held to this text
    source: str | None = None  # the answer must be a copy of this text


def raw_copy(filler: str, *, free: bool) -> list[Turn]:
    source = f"{INVENTORY}\n\n{CONFIG}"
    if free:
        messages = [_user(f"{filler}Repeat this file exactly, and nothing else.\n\n{source}")]
        return [Turn("raw-copy", messages, source=source)]
    head = source[: len(source) // 12].rsplit("\n", 1)[0]
    prefilled = (source.rstrip("\n") + "\n\n\n") * 2 + head
    messages = [
        _user(f"{filler}Repeat this file 4 times.\n\n{source}"),
        {"role": "assistant", "content": prefilled},
    ]
    return [Turn("raw-copy", messages, source=source)]


def numbered_copy(filler: str, *, free: bool) -> list[Turn]:
    messages = _read(f"{filler}Read inventory.py and write it again without line numbers.")
    return [
        Turn("numbered-copy", messages, held=None if free else INVENTORY, source=INVENTORY),
    ]


def edits(filler: str, *, free: bool) -> list[Turn]:
    ask = (
        f"{filler}Read inventory.py, add a method clear, drop the check of negative counts, sort "
        "the keys when saving, and write the whole file."
    )
    return [Turn("edits", _read(ask), held=None if free else EDITED)]


def coding_session(filler: str, *, free: bool) -> list[Turn]:
    """Three turns of one conversation, each with the ideal answers to those before it."""
    first = _read(
        f"{filler}Read inventory.py, add a method clear, drop the check of negative counts and "
        "sort the keys when saving. Write the whole file."
    )
    second = [
        *first,
        {"role": "assistant", "content": EDITED},
        _user("Add a method names, and raise LookupError with a message. Write the whole file."),
    ]
    third = [
        *second,
        {"role": "assistant", "content": AGAIN},
        _user("Explain in a few sentences what the class is for."),
    ]
    return [
        Turn("session-1", first, held=None if free else EDITED),
        Turn("session-2", second, held=None if free else AGAIN),
        Turn("session-3", third, SAMPLED),
    ]


def reasoning(filler: str, *, free: bool) -> list[Turn]:
    return [Turn("reasoning", [_user(f"{filler}{ASK_PROSE}")], SAMPLED)]


Maker = Callable[..., list[Turn]]
WORKLOADS: dict[str, Maker] = {
    "raw-copy": raw_copy,
    "numbered-copy": numbered_copy,
    "edits": edits,
    "coding-session": coding_session,
    "reasoning": reasoning,
}


def filler(lines: int) -> str:
    """So many lines of notes that differ from each other; empty for none."""
    if not lines:
        return ""
    notes = "".join(
        f"Entry {n}: the value of item {n * 37 % 1009} is {n * n}.\n" for n in range(lines)
    )
    return f"These notes may help.\n{notes}\n"


def numbered(text: str) -> str:
    """As agents' read tools show a file."""
    lines = text.removesuffix("\n").split("\n")
    return "".join(f"{n:>6}\t{line}\n" for n, line in enumerate(lines, start=1))


def _user(text: str) -> Message:
    return {"role": "user", "content": text}


def _read(ask: str) -> list[Message]:
    """A conversation up to a read tool's result."""
    function = {"name": "read_file", "arguments": '{"path": "inventory.py"}'}
    call = {"id": "call_1", "type": "function", "function": function}
    return [
        _user(ask),
        {"role": "assistant", "content": "I read it first.", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "call_1", "content": numbered(INVENTORY)},
    ]
