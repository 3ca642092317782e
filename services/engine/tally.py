"""Counts and clock readings of one request, for its log line."""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from services.engine.drafting.draft import Draft
from shared.messages import (
    DraftKind,
    EngineLimits,
    EngineTimings,
    SourceStats,
    SpeculativeStats,
)

# These stand in for the neural drafter's tokens; every other kind is a copy.
NOT_COPIES = frozenset({"lookup", "neural"})


# The gateway finds a stop string while the engine goes on; this is far more than it goes on for.
RECENT_ROUNDS = 64


class Verified(NamedTuple):
    """One round with drafts."""

    start: int  # output tokens before it
    draft: Draft
    accepted: int


@dataclass
class SourceTally:
    rounds: int = 0
    drafted: int = 0
    accepted: int = 0

    @classmethod
    def total(cls, parts: "Iterable[SourceTally]") -> "SourceTally":
        """A bridge counts a round for the neural drafter and one for its copy."""
        total = cls()
        for part in parts:
            total.rounds += part.rounds
            total.drafted += part.drafted
            total.accepted += part.accepted
        return total


@dataclass
class Tally:
    """Monotonic seconds and counts; `draft_window` sizes the acceptance histogram."""

    received_s: float
    draft_window: int
    started_s: float | None = None  # first prefill pass
    first_token_s: float | None = None
    last_token_s: float | None = None
    decode_passes: int = 0
    fallback_steps: int = 0
    forward_s: float = 0.0
    host_s: float = 0.0
    neural_s: float = 0.0
    handoffs: int = 0
    resumes: int = 0
    index_wait_rounds: int = 0
    rounds: int = 0  # decode passes that verified drafts
    sources: dict[DraftKind, SourceTally] = field(default_factory=dict)
    accepted_per_position: list[int] = field(init=False)
    # the last rounds, in case that a stop string turns out to have ended the output before them
    _recent: deque[Verified] = field(default_factory=lambda: deque(maxlen=RECENT_ROUNDS))

    def __post_init__(self) -> None:
        self.accepted_per_position = [0] * self.draft_window

    def count_round(self, draft: Draft | None, accepted: int, start: int) -> None:
        """One decode pass: a verify round if it had a draft, else a fallback step.

        `start`: how many output tokens stood before it.
        """
        self.decode_passes += 1
        if draft is None:
            self.fallback_steps += 1
            return
        self.rounds += 1
        self._recent.append(Verified(start, draft, accepted))
        neural = min(accepted, draft.neural)
        if draft.neural:
            self._count_source(draft.neural_kind, draft.neural, neural)
        if draft.copied:
            self._count_source(draft.kind, draft.copied, accepted - neural)
        for i_position in range(accepted):
            self.accepted_per_position[i_position] += 1

    def truncate(self, output_tokens: int) -> None:
        """The output ends there, at a stop string: drafts behind it were not accepted after all."""
        while self._recent:
            start, draft, accepted = self._recent.pop()
            kept = max(0, min(accepted, output_tokens - start))
            if kept == accepted:
                return
            neural = min(accepted, draft.neural) - min(kept, draft.neural)
            if neural:
                self.sources[draft.neural_kind].accepted -= neural
            if accepted - kept > neural:
                self.sources[draft.kind].accepted -= accepted - kept - neural
            for i_position in range(kept, accepted):
                self.accepted_per_position[i_position] -= 1

    def _count_source(self, kind: DraftKind, drafted: int, accepted: int) -> None:
        source = self.sources.setdefault(kind, SourceTally())
        source.rounds += 1
        source.drafted += drafted
        source.accepted += accepted

    def speculative(self, limits: EngineLimits) -> SpeculativeStats:
        everything = SourceTally.total(self.sources.values())
        copies = SourceTally.total(
            source for kind, source in self.sources.items() if kind not in NOT_COPIES
        )
        copying = limits.ngram_draft_tokens > 0 or limits.lookup_ngram > 0
        return SpeculativeStats(
            backend=limits.spec if limits.spec != "off" else "ngram" if copying else "off",
            draft_window=self.draft_window,
            rounds=self.rounds,
            drafted_tokens=everything.drafted,
            accepted_tokens=everything.accepted,
            fallback_steps=self.fallback_steps,
            accepted_per_position=tuple(self.accepted_per_position),
            ngram_rounds=copies.rounds,
            ngram_drafted_tokens=copies.drafted,
            ngram_accepted_tokens=copies.accepted,
            ngram_handoffs=self.handoffs,
            ngram_resumes=self.resumes,
            ngram_index_wait_rounds=self.index_wait_rounds,
            sources=tuple(
                SourceStats(
                    kind=kind,
                    rounds=source.rounds,
                    drafted_tokens=source.drafted,
                    accepted_tokens=source.accepted,
                )
                for kind, source in sorted(self.sources.items())
            ),
        )

    def timings(self, now_s: float) -> EngineTimings:
        """A stage that never began took 0; one that never ended ran until now."""
        started = self.started_s if self.started_s is not None else now_s
        first = self.first_token_s if self.first_token_s is not None else now_s
        last = self.last_token_s if self.last_token_s is not None else first
        return EngineTimings(
            queue_s=started - self.received_s,
            prefill_s=first - started,
            decode_s=last - first,
            forward_s=self.forward_s,
            host_s=self.host_s,
            neural_s=self.neural_s,
        )
