"""Counts and clock readings of one request, for its log line."""

from dataclasses import dataclass, field

from services.engine.drafting.draft import Draft
from shared.messages import (
    EngineLimits,
    EngineTimings,
    SourceKind,
    SourceStats,
    SpeculativeStats,
)


@dataclass
class SourceTally:
    rounds: int = 0
    drafted: int = 0
    accepted: int = 0


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
    index_wait_rounds: int = 0
    sources: dict[SourceKind, SourceTally] = field(default_factory=dict)
    accepted_per_position: list[int] = field(init=False)

    def __post_init__(self) -> None:
        self.accepted_per_position = [0] * self.draft_window

    def count_round(self, draft: Draft | None, accepted: int) -> None:
        """One decode pass: a verify round if it had a draft, else a fallback step."""
        self.decode_passes += 1
        if draft is None:
            self.fallback_steps += 1
            return
        source = self.sources.setdefault(draft.kind, SourceTally())
        source.rounds += 1
        source.drafted += len(draft.token_ids)
        source.accepted += accepted
        for i_position in range(accepted):
            self.accepted_per_position[i_position] += 1

    def speculative(self, limits: EngineLimits) -> SpeculativeStats:
        rounds = sum(source.rounds for source in self.sources.values())
        drafted = sum(source.drafted for source in self.sources.values())
        accepted = sum(source.accepted for source in self.sources.values())
        copying = limits.ngram_draft_tokens > 0
        return SpeculativeStats(
            backend=limits.spec if limits.spec != "off" else "ngram" if copying else "off",
            draft_window=self.draft_window,
            rounds=rounds,
            drafted_tokens=drafted,
            accepted_tokens=accepted,
            fallback_steps=self.fallback_steps,
            accepted_per_position=tuple(self.accepted_per_position),
            ngram_rounds=rounds,
            ngram_drafted_tokens=drafted,
            ngram_accepted_tokens=accepted,
            ngram_handoffs=self.handoffs,
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
