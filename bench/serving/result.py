"""What was measured: one request, and the requests of one cell of the table."""

import statistics
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

from bench.serving.client import Answer

COUNTERS = (
    "ngram_rounds",
    "ngram_drafted_tokens",
    "ngram_accepted_tokens",
    "ngram_handoffs",
    "ngram_resumes",
    "ngram_index_wait_rounds",
)


class CellKey(NamedTuple):
    workload: str  # a turn's name
    context: str  # short or near
    cache: str  # cold or cached
    configuration: str


@dataclass(frozen=True)
class Run:
    """One request of a cell."""

    repeat: int
    answer: Answer
    duplicates: float  # share of the output's 12-grams that stand earlier in it

    @property
    def decode_passes(self) -> int | None:
        """Passes behind the first token; only ninfer says."""
        said = self.answer.speculative
        if "rounds" not in said or "fallback_steps" not in said:
            return None
        return int(said["rounds"]) + int(said["fallback_steps"])

    @property
    def tokens_per_pass(self) -> float | None:
        output, passes = self.answer.output_tokens, self.decode_passes
        return (output - 1) / passes if output and passes else None


class Spread(NamedTuple):
    median: float
    low: float
    high: float


@dataclass(frozen=True)
class Cell:
    """All repeats of one request. `refused` says why there are none, `problem` why their speed
    means nothing."""

    key: CellKey
    runs: tuple[Run, ...]
    refused: str | None = None
    problem: str | None = None

    def spread(self, value: Callable[[Run], float | None]) -> Spread | None:
        """None if a run does not tell."""
        found = [value(run) for run in self.runs]
        known = [v for v in found if v is not None]
        if not known or len(known) < len(found):
            return None
        return Spread(statistics.median(known), min(known), max(known))

    def counter(self, name: str) -> int | None:
        """An ngram counter, summed over the repeats."""
        found = [run.answer.speculative.get(name) for run in self.runs]
        return None if not found or None in found else sum(int(n) for n in found if n is not None)


def decode_speed(run: Run) -> float | None:
    return run.answer.decode_tok_s


def first_token(run: Run) -> float | None:
    return run.answer.ttft_s


def row(cell: Cell, *, speed_vs_off: float | None) -> dict[str, Any]:
    """A cell in plain values, as CSV and JSON have it."""
    decode, ttft = cell.spread(decode_speed), cell.spread(first_token)
    said = cell.spread(lambda run: run.answer.timings.get("predicted_per_second"))
    return {
        **cell.key._asdict(),
        "repeats": len(cell.runs),
        "refused": cell.refused,
        "problem": cell.problem,
        "prompt_tokens": _median(cell, lambda run: run.answer.prompt_tokens),
        "computed_prefill_tokens": _median(cell, lambda run: run.answer.computed_tokens),
        "reused_prefill_tokens": _median(cell, lambda run: run.answer.reused_tokens),
        "output_tokens": _median(cell, lambda run: run.answer.output_tokens),
        **_spread("ttft_s", ttft),
        **_spread("decode_tok_s", decode),
        "server_decode_tok_s": said.median if said else None,
        "decode_speed_vs_off": speed_vs_off,
        "tokens_per_pass": _median(cell, lambda run: run.tokens_per_pass),
        "duplicate_12_gram_share": _median(cell, lambda run: run.duplicates),
        "drafted_tokens": cell.counter("num_draft_tokens"),
        "accepted_tokens": cell.counter("num_accepted_tokens"),
        **{name: cell.counter(name) for name in COUNTERS},
    }


def run_values(run: Run) -> dict[str, Any]:
    """One request in plain values, without its text."""
    values = asdict(run.answer)
    del values["text"]
    return {
        "repeat": run.repeat,
        **values,
        "computed_prefill_tokens": run.answer.computed_tokens,
        "decode_tok_s": run.answer.decode_tok_s,
        "decode_passes": run.decode_passes,
        "tokens_per_pass": run.tokens_per_pass,
        "duplicate_12_gram_share": run.duplicates,
    }


def _median(cell: Cell, value: Callable[[Run], float | None]) -> float | None:
    found = cell.spread(value)
    return found.median if found else None


def _spread(name: str, found: Spread | None) -> dict[str, float | None]:
    if found is None:
        return {name: None, f"{name}_min": None, f"{name}_max": None}
    return {name: found.median, f"{name}_min": found.low, f"{name}_max": found.high}
