"""The replay itself: propose, compare with the known output, commit, count."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from bench.replay.neural import CoinDrafter
from bench.replay.peers import Drafter
from bench.replay.tasks import Task


@dataclass
class Outcome:
    """Counts over any number of tasks."""

    tokens: int = 0  # of output
    passes: int = 0
    drafted: int = 0
    accepted: int = 0
    proposal_s: list[float] = field(default_factory=list)  # one for each call of the drafter

    @property
    def tokens_per_pass(self) -> float:
        return self.tokens / self.passes

    @property
    def waste(self) -> float:
        """Rejected drafts for each token of output."""
        return (self.drafted - self.accepted) / self.tokens

    def speed(self, column_cost: float) -> float:
        """Against no drafting, if a pass costs 1 and each drafted token `column_cost` more."""
        return self.tokens / (self.passes + column_cost * self.drafted)

    def add(self, other: "Outcome") -> None:
        self.tokens += other.tokens
        self.passes += other.passes
        self.drafted += other.drafted
        self.accepted += other.accepted
        self.proposal_s += other.proposal_s


def replay(task: Task, drafter: Drafter, width: int, neural: CoinDrafter | None = None) -> Outcome:
    """One task. The first token comes out of the prompt's pass, before anything is proposed.

    A round without a copy uses the neural drafts if there are any; a `drafter` that weighs both
    itself proposes in every round.
    """
    output = task.output_ids
    text = np.concatenate([task.prompt_ids, output])
    prompt_len = len(task.prompt_ids)
    drafter.begin(task)
    if neural is not None:
        neural.begin(task)
    done = 1
    outcome = Outcome(tokens=len(output), passes=1)
    while done < len(output):
        committed = text[: prompt_len + done]
        began_s = time.perf_counter()
        drafts = drafter.propose(committed, width)
        outcome.proposal_s.append(time.perf_counter() - began_s)
        if not len(drafts) and neural is not None:
            drafts = neural.propose(committed, width)
        accepted = _accepted(drafts, output[done : done + len(drafts)].tolist())
        done = min(done + accepted + 1, len(output))
        outcome.passes += 1
        outcome.drafted += len(drafts)
        outcome.accepted += accepted
        drafter.observe(text[: prompt_len + done], len(drafts), accepted)
    return outcome


def _accepted(drafts: Sequence[int], truth: Sequence[int]) -> int:
    for i_draft, (draft, true) in enumerate(zip(drafts, truth, strict=False)):
        if draft != true:
            return i_draft
    return min(len(drafts), len(truth))
