"""What `bench exactness` decodes: an endless, mixed and repeatable list of conversations."""

import importlib
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from bench.mtp_prompts import QUESTIONS

Message = dict[str, Any]

# Pure Python, of different authors and ages.
MODULES = (
    "argparse", "ast", "bisect", "calendar", "cmd", "codecs", "colorsys", "configparser",
    "contextlib", "copy", "csv", "dataclasses", "difflib", "dis", "fnmatch", "fractions",
    "gettext", "glob", "gzip", "heapq", "imaplib", "ipaddress", "json.decoder", "linecache",
    "mailbox", "netrc", "ntpath", "numbers", "operator", "pathlib", "pickle", "platform",
    "pprint", "queue", "random", "sched", "shelve", "shlex", "shutil", "socketserver",
    "statistics", "string", "tarfile", "tempfile", "textwrap", "timeit", "tokenize", "zipfile",
)  # fmt: skip
LINES = 34  # of a file
HEAD = 6  # lines of the answer that stand prefilled, since a small model starts no copy itself
TOPICS = (
    "reverses a linked list", "parses an ISO date", "finds all primes below n",
    "merges two sorted lists", "counts the words of a text file", "validates an e-mail address",
    "rotates a matrix", "computes a moving average", "flattens nested lists",
    "reads a CSV file into dictionaries", "converts Roman numerals", "implements an LRU cache",
    "walks a folder and sums file sizes", "solves a quadratic equation", "retries a failing call",
)  # fmt: skip


@dataclass(frozen=True)
class Conversation:
    name: str
    messages: list[Message]

    @property
    def tool_texts(self) -> list[str]:
        return [m["content"] for m in self.messages if m["role"] == "tool"]


def conversation(number: int) -> Conversation:
    """The same number gives the same conversation, on the same Python."""
    kind = list(KINDS)[number % len(KINDS)]
    which = number // len(KINDS)
    return Conversation(f"{kind}-{which}", KINDS[kind](which))


def prose(which: int) -> list[Message]:
    asked = QUESTIONS[which % len(QUESTIONS)]
    return [_user(asked if which < len(QUESTIONS) else f"{asked} Answer in {which} sentences.")]


def code(which: int) -> list[Message]:
    topic = TOPICS[which % len(TOPICS)]
    again = f" Use at least {which} lines." if which >= len(TOPICS) else ""
    return [_user(f"Write a Python function that {topic}, with a docstring and tests.{again}")]


def file_copy(which: int) -> list[Message]:
    source = listing(which)
    return [
        _user(f"Repeat this file exactly.\n\n{source}"),
        _assistant(f"{source}\n\n\n{_head(source)}"),
    ]


def edit(which: int) -> list[Message]:
    """The file with a name changed throughout, after a turn that read it."""
    source = listing(which + 1)
    edited = source.replace("self", "this").replace("name", "label")
    return [
        _user("Read the file."),
        {"role": "tool", "content": source, "tool_call_id": "call_1"},
        _assistant(f"I have read it:\n\n{source}"),
        _user("Rename self to this and name to label, and write the whole file again."),
        _assistant(_head(edited)),
    ]


def tool_result(which: int) -> list[Message]:
    """A file with line numbers, as read tools show it, written again without them."""
    source = listing(which + 2)
    numbered = "\n".join(f"{n}\t{line}" for n, line in enumerate(source.split("\n"), start=1))
    return [
        _user("Read the file and write it again without line numbers."),
        {"role": "tool", "content": numbered, "tool_call_id": "call_1"},
        _assistant(_head(source)),
    ]


KINDS: dict[str, Callable[[int], list[Message]]] = {
    "prose": prose,
    "code": code,
    "file-copy": file_copy,
    "edit": edit,
    "tool-result": tool_result,
}


def listing(which: int) -> str:
    """`LINES` lines from a module of the standard library; each round of `MODULES` goes deeper."""
    depth, index = divmod(which, len(MODULES))
    lines = inspect.getsource(importlib.import_module(MODULES[index])).split("\n")
    start = (40 + LINES * depth) % max(1, len(lines) - LINES)
    return "\n".join(lines[start : start + LINES]).strip("\n")


def _head(text: str) -> str:
    """Without the last newline, which the tokenizer joins with the indentation behind it."""
    return "\n".join(text.split("\n")[:HEAD])


def _user(text: str) -> Message:
    return {"role": "user", "content": text}


def _assistant(text: str) -> Message:
    return {"role": "assistant", "content": text}
