"""How a request ended, for the log and its observers; several choices come to one outcome."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from shared.messages import EngineTimings, GenerationStats, SourceStats, SpeculativeStats

SUMMED = (
    "rounds",
    "drafted_tokens",
    "accepted_tokens",
    "fallback_steps",
    "ngram_rounds",
    "ngram_drafted_tokens",
    "ngram_accepted_tokens",
    "ngram_handoffs",
    "ngram_resumes",
    "ngram_index_wait_rounds",
)


@dataclass(frozen=True, kw_only=True)
class Outcome:
    reason: str
    stats: GenerationStats
    completion_tokens: int  # up to a stop string, if one ended it
    reasoning_tokens: int
    tool_calls: int
    timings: dict[str, float | None]  # seconds of prepare, ttft (None without text) and total
    archive: dict[str, Any]  # the log's `ngram_archive`
    choices: tuple["Outcome", ...] = ()  # by index; none where the request asked for one alone

    @property
    def each(self) -> tuple["Outcome", ...]:
        """Of every output."""
        return self.choices or (self,)


def together(choices: Sequence[Outcome]) -> Outcome:
    """What the choices of one request, at least one and in order, are as one request."""
    first = choices[0]
    texts_s = [c.timings["ttft"] for c in choices if c.timings["ttft"] is not None]
    reasons = [c.reason for c in choices]
    return Outcome(
        reason="cancelled" if "cancelled" in reasons else first.reason,
        stats=merged_stats([c.stats for c in choices]),
        completion_tokens=sum(c.completion_tokens for c in choices),
        reasoning_tokens=sum(c.reasoning_tokens for c in choices),
        tool_calls=sum(c.tool_calls for c in choices),
        timings={
            "prepare": first.timings["prepare"],
            "ttft": min(texts_s, default=None),
            "total": max(c.timings["total"] or 0.0 for c in choices),
        },
        archive=first.archive,
        choices=tuple(choices),
    )


def merged_stats(choices: Sequence[GenerationStats]) -> GenerationStats:
    """The prompt counts once, with the reuse that the first choice found: that of the others is of
    the first. What the model computed, drafted and yielded counts for all."""
    first = choices[0]
    return msgspec.structs.replace(
        first,
        output_tokens=sum(c.output_tokens for c in choices),
        computed_prefill_tokens=sum(c.computed_prefill_tokens for c in choices),
        decode_passes=sum(c.decode_passes for c in choices),
        timings=_timings([c.timings for c in choices]),
        speculative=_speculative([c.speculative for c in choices]),
    )


def _timings(choices: Sequence[EngineTimings]) -> EngineTimings:
    """One way through time: until the first choice has its first token, then until the choice that
    ends last has its last. The others began when the first had its first token."""
    first = choices[0]

    def behind_first_s(index: int) -> float:
        own = choices[index]
        return own.decode_s + (own.queue_s + own.prefill_s if index else 0.0)

    i_last = max(range(len(choices)), key=behind_first_s)
    last = choices[i_last]
    return EngineTimings(
        queue_s=first.queue_s,
        prefill_s=first.prefill_s,
        decode_s=behind_first_s(i_last),
        forward_s=last.forward_s,
        host_s=last.host_s,
        neural_s=last.neural_s,
    )


def _speculative(choices: Sequence[SpeculativeStats]) -> SpeculativeStats:
    totals = {name: sum(getattr(c, name) for c in choices) for name in SUMMED}
    positions = zip(*(c.accepted_per_position for c in choices), strict=True)
    sources: dict[str, SourceStats] = {}
    for source in (source for c in choices for source in c.sources):
        before = sources.get(source.kind)
        sources[source.kind] = source if before is None else _both(before, source)
    return msgspec.structs.replace(
        choices[0],
        accepted_per_position=tuple(map(sum, positions)),
        sources=tuple(sources[kind] for kind in sorted(sources)),
        **totals,
    )


def _both(one: SourceStats, other: SourceStats) -> SourceStats:
    return SourceStats(
        kind=one.kind,
        rounds=one.rounds + other.rounds,
        drafted_tokens=one.drafted_tokens + other.drafted_tokens,
        accepted_tokens=one.accepted_tokens + other.accepted_tokens,
    )
