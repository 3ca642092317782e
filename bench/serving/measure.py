"""Asks every workload of each target in turn, so that a noisy machine disturbs all alike."""

import contextlib
import difflib
import uuid
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from bench.replay.tasks import duplicate_share
from bench.serving.client import Answer, ChatClient, Refused
from bench.serving.config import Plan
from bench.serving.result import Cell, CellKey, Run
from bench.serving.workloads import WORKLOADS, Turn, filler

CACHES = ("cold", "cached")
COPIED_SHARE = 0.8  # of an answer that must be one piece of its source
LINE_TOKENS = 8  # a line of filler has more
TEMPLATE_TOKENS = 8  # left free behind a near-capacity answer
WARM_UP_TOKENS = 32


@dataclass(frozen=True)
class Target:
    """A server under one configuration."""

    name: str
    client: ChatClient
    ninfer: dict[str, Any] = field(default_factory=dict)
    ours: bool = True  # its texts must equal those of the other targets that are ours


@dataclass(frozen=True)
class Conversation:
    """The turns of one workload in one context, asked one after the other."""

    context: str
    turns: tuple[Turn, ...]


def conversations(plan: Plan, client: ChatClient) -> tuple[list[Conversation], list[str]]:
    """What to ask, and what is left out since it does not fit."""
    found, left_out = [], []
    for context in plan.contexts:
        for name in plan.workloads:
            lines = 0
            if context == "near":
                lines = near_lines(plan, client, name)
                if not lines:
                    left_out.append(f"{name}: no room to fill in {client.card.context} tokens")
                    continue
            turns = WORKLOADS[name](filler(lines), free=plan.config.free)
            found.append(Conversation(context, tuple(turns)))
    return found, left_out


def near_lines(plan: Plan, client: ChatClient, workload: str) -> int:
    """The most lines of filler that leave room for the answer; 0 if none do."""
    capacity = client.card.context
    if capacity is None:
        raise Refused("the server does not say how much context it has; use --contexts short")
    room = capacity - plan.config.output_tokens - TEMPLATE_TOKENS

    def fits(lines: int) -> bool:
        turns = WORKLOADS[workload](filler(lines), free=plan.config.free)
        return client.prompt_tokens(turns[-1]) <= room

    low, high = 0, room // LINE_TOKENS  # `low` fits or is 0, `high` does not fit
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def measure(
    plan: Plan,
    targets: Sequence[Target],
    asked: Sequence[Conversation],
    advance: Callable[[str], None],
) -> list[Cell]:
    """Every conversation cold, then again; `advance` hears of each request before it is sent."""
    runs: dict[CellKey, list[Run]] = defaultdict(list)
    refused: dict[CellKey, str] = {}
    tokenize = targets[0].client.tokenize
    run_id = uuid.uuid4().hex[:8]
    for repeat in range(plan.config.repeats):
        # by turns, so that none is always the first to find the caches of the machine warm
        order = targets if repeat % 2 == 0 else tuple(reversed(targets))
        for number, conversation in enumerate(asked):
            for target in order:
                salt = f"{run_id}-{target.name}-{repeat}-{number}"
                for cache in CACHES:
                    for turn in conversation.turns:
                        key = CellKey(turn.name, conversation.context, cache, target.name)
                        advance(f"{repeat + 1}/{plan.config.repeats} {' '.join(key)}")
                        try:
                            answer = _ask(plan, target, turn, salt)
                        except Refused as exc:
                            refused[key] = str(exc)
                            continue
                        ids = np.array(tokenize(answer.text), dtype=np.int32)
                        runs[key].append(Run(repeat, answer, duplicate_share(ids)))
    return _cells(asked, targets, runs, refused)


def warm_up(targets: Sequence[Target], turn: Turn) -> None:
    """A server's first request pays for what it allocates and learns."""
    for target in targets:
        with contextlib.suppress(Refused):  # it will be again, and then it is reported
            target.client.ask(
                turn, output_tokens=WARM_UP_TOKENS, salt=uuid.uuid4().hex, ninfer=target.ninfer
            )


def problem_of(turn: Turn, answer: Answer) -> str | None:
    """Why the speed of an answer says nothing about its workload."""
    if turn.held is not None and not turn.held.startswith(answer.text):
        return "the answer is not the text it was held to"
    if turn.held is None and turn.source is not None:
        matcher = difflib.SequenceMatcher(None, answer.text, turn.source, autojunk=False)
        longest = matcher.find_longest_match().size
        if not answer.text or longest < COPIED_SHARE * len(answer.text):
            return f"only {longest} of {len(answer.text)} characters are a copy"
    return None


def _ask(plan: Plan, target: Target, turn: Turn, salt: str) -> Answer:
    return target.client.ask(
        turn, output_tokens=plan.config.output_tokens, salt=salt, ninfer=target.ninfer
    )


def _cells(
    asked: Sequence[Conversation],
    targets: Sequence[Target],
    runs: dict[CellKey, list[Run]],
    refused: dict[CellKey, str],
) -> list[Cell]:
    cells = []
    for conversation in asked:
        for turn in conversation.turns:
            for cache in CACHES:
                for target in targets:
                    key = CellKey(turn.name, conversation.context, cache, target.name)
                    found = tuple(runs[key])
                    problems = [p for run in found if (p := problem_of(turn, run.answer))]
                    cells.append(
                        Cell(key, found, refused.get(key), problems[0] if problems else None)
                    )
    return cells
