"""What ninfer's adaptive policy must reach; every comparison is with the peers of the same run."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from bench.replay.contenders import COLUMN_COSTS
from bench.replay.report import ALL, Line
from bench.replay.tasks import COPYING

REFERENCE_COST = 0.007  # tokens per pass are judged with the drafter told this cost
# How far tokens go depends on the packages, so the absolute bars are scaled by what suffix decoding
# of width 63 reaches in the same run against what it reached where the bars were set.
TOKENS_PER_PASS = {(15, 0): 5.6, (63, 0): 6.9, (63, 3): 10.7}  # (width, neural) -> bar
YARDSTICK, YARDSTICK_TOKENS_PER_PASS = "suffix decoding 4x/63", 5.07
NUMBERED_TO_PLAIN = 0.9
ORACLE_SHARE = 0.55
HOST_MEDIAN_US, HOST_P99_US = 60.0, 300.0  # a proposal, over `LONG_CONTEXT` tokens


@dataclass(frozen=True)
class Bar:
    name: str
    value: float
    bar: float
    holds: bool


def judge(lines: Sequence[Line]) -> list[Bar]:
    """Empty as long as no adaptive drafter takes part."""
    run = _Run(lines)
    if not any(entry.tuned_for is not None for entry in lines):
        return []
    return [*_absolute(run), *_against_peers(run), *_speeds(run), *_shares(run)]


class _Run:
    def __init__(self, lines: Sequence[Line]) -> None:
        self._lines = lines

    def ours(self, width: int, neural: int, kind: str = ALL, cost: float = REFERENCE_COST) -> Line:
        return next(
            e
            for e in self._lines
            if e.role == "ninfer"
            and (e.width, e.neural, e.kind, e.tuned_for) == (width, neural, kind, cost)
        )

    def peers(self, neural: int, kind: str = ALL, widest: int = 64) -> list[Line]:
        return [
            e
            for e in self._lines
            if e.role == "peer" and (e.neural, e.kind) == (neural, kind) and e.width <= widest
        ]

    def oracle(self, width: int) -> Line:
        return next(
            e for e in self._lines if e.role == "oracle" and (e.width, e.kind) == (width, ALL)
        )

    def plain(self, neural: int) -> list[tuple[int, int]]:
        """The (width, neural) that ninfer runs with."""
        found = {(e.width, e.neural) for e in self._lines if e.tuned_for is not None}
        return sorted(key for key in found if key[1] == neural)


def _absolute(run: _Run) -> Iterator[Bar]:
    yardstick = next(e for e in run.peers(0) if e.drafter == YARDSTICK)
    scale = yardstick.tokens_per_pass / YARDSTICK_TOKENS_PER_PASS
    for (width, neural), bar in TOKENS_PER_PASS.items():
        value = run.ours(width, neural).tokens_per_pass
        stacked = f", neural drafter of {neural}" if neural else ""
        name = f"tokens per pass, width {width}{stacked} (bar {bar:g} x {scale:.2f})"
        yield _at_least(name, value, round(bar * scale, 3))


def _against_peers(run: _Run) -> Iterator[Bar]:
    for width in (15, 63):
        for kind in COPYING:
            best = max(run.peers(0, kind, width + 1), key=lambda e: e.tokens_per_pass)
            value = run.ours(width, 0, kind).tokens_per_pass
            name = f"tokens per pass, {kind}, width {width}, against {best.drafter}"
            # An unchanged file leaves nothing to choose: whoever finds it drafts the full width
            # in every round and has all of it accepted. At width 15 a peer does too, and nobody
            # can do better, so there the same figure (to 3 decimals, as every Line has) is enough.
            saturated = (kind, width) == ("echo", 15)
            judged = _at_least if saturated else _above
            yield judged(name, value, best.tokens_per_pass)


def _speeds(run: _Run) -> Iterator[Bar]:
    for neural in (0, 3):
        for cost in COLUMN_COSTS:
            best = max(run.peers(neural), key=lambda e: e.speed(cost))
            value = max(run.ours(w, n, cost=cost).speed(cost) for w, n in run.plain(neural))
            stacked = f", neural {neural}" if neural else ""
            name = f"modelled speed at {cost:g}{stacked}, against {best.drafter}"
            yield _above(name, value, best.speed(cost))
    for cost in COLUMN_COSTS:
        value = min(run.ours(w, n, "control", cost).speed(cost) for w, n in run.plain(0))
        yield _at_least(f"modelled speed on the control at {cost:g}", value, 1.0)


def _shares(run: _Run) -> Iterator[Bar]:
    numbered, plain = (run.ours(63, 0, kind).tokens_per_pass for kind in ("numbered", "plain"))
    yield _at_least("numbered against plain, width 63", numbered / plain, NUMBERED_TO_PLAIN)
    share = run.ours(63, 0).tokens_per_pass / run.oracle(63).tokens_per_pass
    yield _at_least("share of the hindsight oracle, width 63", share, ORACLE_SHARE)


def judge_host(median_us: float, p99_us: float) -> list[Bar]:
    """Of ninfer's own proposals over long prompts."""
    return [
        _at_most("us a proposal, 32,000 tokens of context, median", median_us, HOST_MEDIAN_US),
        _at_most("us a proposal, 32,000 tokens of context, 99th percentile", p99_us, HOST_P99_US),
    ]


def _at_most(name: str, value: float, bar: float) -> Bar:
    return Bar(name, round(value, 1), bar, value <= bar)


def _at_least(name: str, value: float, bar: float) -> Bar:
    return Bar(name, round(value, 3), bar, value >= bar)


def _above(name: str, value: float, bar: float) -> Bar:
    return Bar(name, round(value, 3), bar, value > bar)
