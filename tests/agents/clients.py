"""The agents: how each is called, and how a model asks each to read and to edit a file.

Their configurations are those that docs/clients.md tells people to use.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

DOCUMENT = Path(__file__).parents[2] / "docs" / "clients.md"
MODEL = "scripted"


class Call(NamedTuple):
    name: str
    arguments: dict[str, Any]


@dataclass(frozen=True)
class Client:
    title: str  # its heading in docs/clients.md
    argv: tuple[str, ...]  # before the task
    read: Callable[[Path], Call]
    edit: Callable[[Path, str, str], Call]  # of a path, the old text and the new


@dataclass(frozen=True)
class Configuration:
    files: dict[str, str]  # path below the home folder -> content
    environment: dict[str, str]
    commands: tuple[tuple[str, ...], ...]


def _opencode_read(path: Path) -> Call:
    return Call("read", {"filePath": str(path)})


def _opencode_edit(path: Path, old: str, new: str) -> Call:
    return Call("edit", {"filePath": str(path), "oldString": old, "newString": new})


def _claude_edit(path: Path, old: str, new: str) -> Call:
    arguments: dict[str, Any] = {"file_path": str(path), "old_string": old, "new_string": new}
    return Call("Edit", arguments)


def _codex_edit(path: Path, old: str, new: str) -> Call:
    removed = "".join(f"-{line}\n" for line in old.splitlines())
    added = "".join(f"+{line}\n" for line in new.splitlines())
    patch = f"*** Begin Patch\n*** Update File: {path.name}\n@@\n{removed}{added}*** End Patch"
    return Call("exec_command", {"cmd": f"apply_patch <<'EOF'\n{patch}\nEOF\n"})


def _cline_edit(path: Path, old: str, new: str) -> Call:
    return Call("editor", {"path": str(path), "old_text": old, "new_text": new})


CLIENTS = {
    "codex": Client(
        "Codex",
        (
            *("codex", "exec", "--dangerously-bypass-approvals-and-sandbox"),
            *("--skip-git-repo-check", "--json"),
        ),
        lambda path: Call("exec_command", {"cmd": f"cat {path.name}"}),
        _codex_edit,
    ),
    "claude": Client(
        "Claude Code",
        (
            *("claude", "--permission-mode=acceptEdits", "--verbose"),
            *("--output-format=stream-json", "-p"),
        ),
        lambda path: Call("Read", {"file_path": str(path)}),
        _claude_edit,
    ),
    "opencode": Client(
        "OpenCode",
        ("opencode", "run", "--format=json", "--auto"),
        _opencode_read,
        _opencode_edit,
    ),
    "kilo": Client(
        "Kilo", ("kilo", "run", "--format=json", "--auto"), _opencode_read, _opencode_edit
    ),
    "cline": Client(
        "Cline",
        ("cline", "--json"),
        lambda path: Call("read_files", {"files": [{"path": str(path)}]}),
        _cline_edit,
    ),
}


def configuration(title: str) -> Configuration:
    """What the document's section says, with this model's name in it."""
    text = re.sub(r"\bMODEL\b", MODEL, DOCUMENT.read_text(encoding="utf-8"))
    (section,) = re.findall(rf"^## {title}\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    files = dict(re.findall(r"^`~/(\S+)`:\n\n```\w+\n(.*?)^```", section, re.MULTILINE | re.DOTALL))
    shell = "".join(re.findall(r"^```sh\n(.*?)^```", section, re.MULTILINE | re.DOTALL))
    environment, commands = {}, []
    for line in shell.splitlines():
        if line.startswith("export "):
            name, _, value = line.removeprefix("export ").partition("=")
            environment[name] = value
        else:
            commands.append(tuple(line.split()))
    return Configuration(files, environment, tuple(commands))
