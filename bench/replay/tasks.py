"""Replay tasks: a prompt as an agent would have sent it, and the output that the target gives.

| kind | output |
| --- | --- |
| numbered | the whole new file, after a tool result that shows the old one with line numbers |
| plain | the same after a plain tool result |
| hunks | search/replace blocks; every second task shows the numbered file |
| patch | a unified diff or an apply_patch patch; every second task shows the numbered file |
| echo | the file unchanged |
| second | the whole new file, after a first rewrite that made half of the changes |
| control | code or prose that has nothing to do with the prompt |
| escaped | the whole new file as one JSON string, after a numbered tool result |
"""

import json
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from bench.replay.edits import apply_patch, half_done, search_replace, unified
from bench.replay.packages import FileEdit
from shared.template import ChatTemplate, Message
from shared.tokenizer import Tokenizer

Kind = Literal["numbered", "plain", "hunks", "patch", "echo", "second", "control", "escaped"]
KINDS: tuple[Kind, ...] = get_args(Kind)
POOLED = KINDS[:-1]  # `escaped` is shown beside the pooled figures
COPYING = tuple(kind for kind in KINDS if kind != "control")
MAX_OUTPUT_TOKENS = 4096

# The line numbers that real agents print, by turns.
NUMBERINGS: tuple[Callable[[int, str], str], ...] = (
    lambda number, line: f"{number:6d}→{line}",
    lambda number, line: f"{number}\t{line}",
    lambda number, line: f"{number}: {line}",
    lambda number, line: f"{number:>4} | {line}",
    lambda number, line: f"L{number}: {line}",
)


@dataclass(frozen=True)
class Task:
    kind: Kind
    name: str
    prompt_ids: np.ndarray  # int32 [prompt_len]
    tool_texts: tuple[str, ...]
    output_ids: np.ndarray  # int32 [output_len], ends with the stop token


@dataclass(frozen=True)
class TaskMaker:
    tokenizer: Tokenizer
    template: ChatTemplate
    edits: list[FileEdit]
    prose: Sequence[str]

    def make(self, per_kind: int, *, seed: int = 1) -> list[Task]:
        """`per_kind` tasks of each kind, every one with a file of its own where there are enough.

        Raises:
            ValueError: there are too few edits.
        """
        if len(self.edits) < 2:
            raise ValueError("the package pairs hold fewer than two edited files; name more pairs")
        tasks = []
        for kind in KINDS:
            # another order for each kind, else all of them would show the same few files
            order = random.Random(f"{seed} {kind}").sample(range(len(self.edits)), len(self.edits))
            tasks += [
                self._task(kind, i_task, self.edits[order[i_task % len(order)]])
                for i_task in range(per_kind)
            ]
        return tasks

    def make_long(self, count: int, prompt_tokens: int) -> list[Task]:
        """Tasks of the copying kinds behind so many tokens of other files, read before."""
        tasks = []
        for index in range(count):
            earlier: list[Message] = []
            tokens = 0
            for edit in self.edits[index + 1 :] + self.edits[: index + 1]:
                if tokens >= prompt_tokens:
                    break
                earlier += [
                    {"role": "assistant", "content": f"I will read {edit.path}."},
                    {"role": "tool", "content": _numbered(edit.old, index)},
                ]
                tokens += len(self.tokenizer.encode_text(earlier[-1]["content"]))
            kind = COPYING[index % len(COPYING)]
            tasks.append(self._task(kind, index, self.edits[index % len(self.edits)], earlier))
        return tasks

    def _task(
        self, kind: Kind, index: int, edit: FileEdit, earlier: Sequence[Message] = ()
    ) -> Task:
        shows_numbers = kind in ("numbered", "escaped") or (
            kind in ("hunks", "patch") and index % 2 == 1
        )
        shown = _numbered(edit.old, index) if shows_numbers else edit.old
        messages = _conversation(edit, shown, second=kind == "second")
        output = self._output(kind, index, edit)
        ids = self.tokenizer.encode_text(output)[: MAX_OUTPUT_TOKENS - 1]
        return Task(
            kind=kind,
            name=f"{kind} {edit.package} {edit.path}",
            prompt_ids=self.template.encode([*messages[:2], *earlier, *messages[2:]], ()),
            tool_texts=(*(m["content"] for m in earlier if m["role"] == "tool"), shown),
            output_ids=np.append(ids, self.tokenizer.stop_ids[0]).astype(np.int32),
        )

    def _output(self, kind: Kind, index: int, edit: FileEdit) -> str:
        match kind:
            case "numbered" | "plain" | "second":
                return f"Here is the whole file:\n```python\n{edit.new}```\n"
            case "hunks":
                return search_replace(edit.old, edit.new)
            case "patch":
                form = apply_patch if index // 2 % 2 else unified
                return form(edit.path, edit.old, edit.new)
            case "echo":
                return f"```python\n{edit.old}```\n"
            case "escaped":
                arguments = json.dumps({"file_path": edit.path, "content": edit.new})
                return f'<tool_call>\n{{"name": "write", "arguments": {arguments}}}\n</tool_call>'
            case "control":
                return self._unrelated(index, edit)

    def _unrelated(self, index: int, edit: FileEdit) -> str:
        if index % 2 and self.prose:
            return self.prose[index // 2 % len(self.prose)]
        others = [e for e in self.edits if e.package != edit.package] or [
            e for e in self.edits if e is not edit
        ]
        return others[(7 * index) % len(others)].new


def duplicate_share(output_ids: np.ndarray, size: int = 12) -> float:
    """The share of n-grams that stand earlier in the same output: how far it is a loop."""
    grams = [tuple(output_ids[i : i + size].tolist()) for i in range(len(output_ids) - size + 1)]
    return 1 - len(set(grams)) / len(grams) if grams else 0.0


def _conversation(edit: FileEdit, shown: str, *, second: bool) -> list[Message]:
    ask = f"Bring {edit.path} up to date with the new release."
    messages: list[Message] = [
        {"role": "system", "content": "You are a coding agent. Use the tools to read files."},
        {"role": "user", "content": ask},
        {"role": "assistant", "content": f"I will read {edit.path} first."},
        {"role": "tool", "content": shown},
    ]
    if second:
        draft = half_done(edit.old, edit.new)
        messages += [
            {"role": "assistant", "content": f"Here is the file:\n```python\n{draft}```\n"},
            {"role": "user", "content": "Some changes are missing. Write the whole file again."},
        ]
    return messages


def _numbered(text: str, index: int) -> str:
    number = NUMBERINGS[index % len(NUMBERINGS)]
    return "\n".join(number(i, line) for i, line in enumerate(text.splitlines(), 1)) + "\n"
