"""Files that a prompt shows elsewhere than in tool results: pasted by a person, or written by the
model itself as an argument of a tool call."""

import json
from collections.abc import Iterator

FEWEST_LINES = 3
FENCES = ("```", "~~~")
DEEPEST_INDENT = 3  # blanks before a fence, as CommonMark has it


def fenced_blocks(text: str) -> Iterator[str]:
    """The bodies of Markdown code fences with at least three lines; one left open counts too."""
    fence = ""
    body: list[str] = []
    for line in text.splitlines(keepends=True):
        mark = _fence(line)
        if not fence:
            fence = mark
        elif mark.startswith(fence) and not line.strip().strip(mark[0]):
            if len(body) >= FEWEST_LINES:
                yield "".join(body)
            fence, body = "", []
        else:
            body.append(line)
    if len(body) >= FEWEST_LINES:
        yield "".join(body)


def argument_texts(arguments: str) -> Iterator[str]:
    """The strings of at least three lines in a call's JSON arguments; none if it is no JSON."""
    try:
        pending = [json.loads(arguments)]
    except (ValueError, RecursionError):
        return
    while pending:
        value = pending.pop()
        if isinstance(value, str):
            if value.count("\n") >= FEWEST_LINES - 1:
                yield value
        elif isinstance(value, list):
            pending.extend(reversed(value))
        elif isinstance(value, dict):
            pending.extend(reversed(value.values()))


def _fence(line: str) -> str:
    """The run of backticks or tildes that opens or closes a block, or nothing."""
    bare = line.lstrip(" ")
    if len(line) - len(bare) > DEEPEST_INDENT or not bare.startswith(FENCES):
        return ""
    return bare[: len(bare) - len(bare.lstrip(bare[0]))]
