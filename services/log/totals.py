"""What many requests come to."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from msgspec import UNSET

from services.gateway.log_lines import AnyLine, Request, RequestDone, RequestError
from services.log.tail import decoded_tokens

GROUPS: dict[str, Callable[[Request], str | None]] = {
    "client": lambda r: r.client or None,
    "protocol": lambda r: r.protocol,
    "model": lambda r: None if r.model is UNSET else r.model,
    "session": lambda r: None if r.draft_session is UNSET else r.draft_session,
}
NONE = "-"


@dataclass
class Total:
    done: int = 0  # ended normally or cancelled
    failed: int = 0  # refused, too
    cancelled: int = 0
    prompt_tokens: int = 0
    reused_tokens: int = 0
    output_tokens: int = 0
    decoded_tokens: int = 0  # without the first of each output, which a prompt's pass yields
    decode_passes: int = 0
    drafted_tokens: int = 0
    accepted_tokens: int = 0
    ttft_s: list[float] = field(default_factory=list)
    total_s: float = 0.0

    def add(self, line: RequestDone) -> None:
        result = line.result
        self.done += 1
        self.cancelled += result.finish_reason == "cancelled"
        self.prompt_tokens += result.prompt_tokens
        self.reused_tokens += result.prefix_cache_hit_tokens
        self.output_tokens += result.completion_tokens
        self.decoded_tokens += decoded_tokens(result)
        self.decode_passes += result.decode_passes
        self.drafted_tokens += line.speculative.drafted_tokens
        self.accepted_tokens += line.speculative.accepted_tokens
        self.total_s += line.timings_seconds.total
        if line.timings_seconds.ttft is not None:
            self.ttft_s.append(line.timings_seconds.ttft)

    @property
    def tokens_per_pass(self) -> float | None:
        return self.decoded_tokens / self.decode_passes if self.decode_passes else None

    @property
    def median_ttft_s(self) -> float | None:
        ordered = sorted(self.ttft_s)
        return ordered[len(ordered) // 2] if ordered else None


@dataclass
class SourceTotal:
    requests: int = 0
    rounds: int = 0
    drafted_tokens: int = 0
    accepted_tokens: int = 0


def by_group(lines: Iterable[AnyLine], group: str) -> dict[str, Total]:
    """In the order of their first request."""
    name_of = GROUPS[group]
    totals: dict[str, Total] = {}
    for line in lines:
        if isinstance(line, RequestDone):
            totals.setdefault(name_of(line.request) or NONE, Total()).add(line)
        elif isinstance(line, RequestError):
            totals.setdefault(name_of(line.request) or NONE, Total()).failed += 1
    return totals


def by_source(lines: Iterable[AnyLine]) -> dict[str, SourceTotal]:
    """By kind of source, what was accepted most first."""
    totals: dict[str, SourceTotal] = {}
    for line in lines:
        if not isinstance(line, RequestDone):
            continue
        for source in line.speculative.sources:
            total = totals.setdefault(source.kind, SourceTotal())
            total.requests += 1
            total.rounds += source.rounds
            total.drafted_tokens += source.drafted_tokens
            total.accepted_tokens += source.accepted_tokens
    return dict(sorted(totals.items(), key=lambda item: -item[1].accepted_tokens))
