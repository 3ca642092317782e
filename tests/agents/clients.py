"""The agents: how each is called, and how a model asks each to read and to edit a file.

Their configurations are those that docs/clients.md tells people to use.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.gateway.agents import qwen_call

DOCUMENT = Path(__file__).parents[2] / "docs" / "clients.md"
MODEL = "scripted"
Edit = Callable[[Path, str, str], str]  # path, old and new text to a call's markup


@dataclass(frozen=True)
class Client:
    title: str  # its heading in docs/clients.md
    argv: tuple[str, ...]  # before the task
    read: Callable[[Path], str]
    edit: Edit
    rewrites_edits: bool = False  # replays them with other arguments than the model's


@dataclass(frozen=True)
class Configuration:
    files: dict[str, str]  # path below the home folder -> content
    environment: dict[str, str]
    commands: tuple[tuple[str, ...], ...]


def _opencode_read(path: Path) -> str:
    return qwen_call("read", {"filePath": str(path)})


def _opencode_edit(path: Path, old: str, new: str) -> str:
    return qwen_call("edit", {"filePath": str(path), "oldString": old, "newString": new})


def _claude_edit(path: Path, old: str, new: str) -> str:
    arguments: dict[str, Any] = {"file_path": str(path), "old_string": old, "new_string": new}
    return qwen_call("Edit", arguments)


def _codex_edit(path: Path, old: str, new: str) -> str:
    removed = "".join(f"-{line}\n" for line in old.splitlines())
    added = "".join(f"+{line}\n" for line in new.splitlines())
    patch = f"*** Begin Patch\n*** Update File: {path.name}\n@@\n{removed}{added}*** End Patch"
    return qwen_call("exec_command", {"cmd": f"apply_patch <<'EOF'\n{patch}\nEOF\n"})


def _cline_edit(path: Path, old: str, new: str) -> str:
    return qwen_call("editor", {"path": str(path), "old_text": old, "new_text": new})


CLIENTS = {
    "codex": Client(
        "Codex",
        (
            *("codex", "exec", "--dangerously-bypass-approvals-and-sandbox"),
            *("--skip-git-repo-check", "--json"),
        ),
        lambda path: qwen_call("exec_command", {"cmd": f"cat {path.name}"}),
        _codex_edit,
    ),
    "claude": Client(
        "Claude Code",
        (
            *("claude", "--permission-mode=acceptEdits", "--verbose"),
            *("--output-format=stream-json", "-p"),
        ),
        lambda path: qwen_call("Read", {"file_path": str(path)}),
        _claude_edit,
        rewrites_edits=True,  # puts `replace_all` in front
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
        lambda path: qwen_call("read_files", {"files": [{"path": str(path)}]}),
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
