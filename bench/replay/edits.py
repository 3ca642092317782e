"""How agents write an edit down: search/replace blocks, a unified diff, an apply_patch patch."""

from collections.abc import Iterator
from difflib import SequenceMatcher, unified_diff

CONTEXT_LINES = 3


def search_replace(old: str, new: str) -> str:
    """One block for each group of changes, with three lines of context on both sides."""
    before, after = old.splitlines(keepends=True), new.splitlines(keepends=True)
    blocks = []
    for group in _groups(before, after):
        first, last = group[0], group[-1]
        searched = "".join(_ended(line) for line in before[first[1] : last[2]])
        replaced = "".join(_ended(line) for line in after[first[3] : last[4]])
        blocks.append(f"<<<<<<< SEARCH\n{searched}=======\n{replaced}>>>>>>> REPLACE\n")
    return "\n".join(blocks)


def unified(path: str, old: str, new: str) -> str:
    before, after = old.splitlines(keepends=True), new.splitlines(keepends=True)
    lines = unified_diff(before, after, f"a/{path}", f"b/{path}", n=CONTEXT_LINES)
    return "".join(_ended(line) for line in lines)


def apply_patch(path: str, old: str, new: str) -> str:
    """The patch form of Codex: no line numbers, `@@` between the hunks."""
    body = unified(path, old, new).splitlines(keepends=True)[2:]
    hunks = "".join("@@\n" if line.startswith("@@") else line for line in body)
    return f"*** Begin Patch\n*** Update File: {path}\n{hunks}*** End Patch\n"


def half_done(old: str, new: str) -> str:
    """The old file with every second change made."""
    before, after = old.splitlines(keepends=True), new.splitlines(keepends=True)
    lines: list[str] = []
    changes = 0
    for tag, start, end, new_start, new_end in _opcodes(before, after):
        if tag == "equal":
            lines += before[start:end]
            continue
        changes += 1
        lines += after[new_start:new_end] if changes % 2 else before[start:end]
    return "".join(lines)


def _groups(before: list[str], after: list[str]) -> Iterator[list[tuple[str, int, int, int, int]]]:
    matcher = SequenceMatcher(None, before, after, autojunk=False)
    yield from matcher.get_grouped_opcodes(CONTEXT_LINES)


def _opcodes(before: list[str], after: list[str]) -> list[tuple[str, int, int, int, int]]:
    return list(SequenceMatcher(None, before, after, autojunk=False).get_opcodes())


def _ended(line: str) -> str:
    return line if line.endswith("\n") else f"{line}\n"
