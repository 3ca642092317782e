"""Counts and clock readings of one request, for its log line."""

from collections.abc import Iterable
from dataclasses import dataclass, field

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
    handoffs: int = 0
    resumes: int = 0
    index_wait_rounds: int = 0
    rounds: int = 0  # decode passes that verified drafts
    sources: dict[DraftKind, SourceTally] = field(default_factory=dict)
    accepted_per_position: list[int] = field(init=False)

    def __post_init__(self) -> None:
        self.accepted_per_position = [0] * self.draft_window

    def count_round(self, draft: Draft | None, accepted: int) -> None:
        """One decode pass: a verify round if it had a draft, else a fallback step."""
        self.decode_passes += 1
        if draft is None:
            self.fallback_steps += 1
            return
        self.rounds += 1
        neural = min(accepted, draft.neural)
        if draft.neural:
            self._count_source(draft.neural_kind, draft.neural, neural)
        if draft.copied:
            self._count_source(draft.kind, draft.copied, accepted - neural)
        for i_position in range(accepted):
            self.accepted_per_position[i_position] += 1

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
        )
