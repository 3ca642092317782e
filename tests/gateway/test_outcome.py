"""What several choices come to together."""

from typing import Any

import msgspec
import pytest

from services.gateway.choices import Choices
from services.gateway.generation import Generation
from services.gateway.outcome import Outcome, together
from services.gateway.request_log import GenerationLog
from shared.errors import EngineDead
from shared.messages import EngineTimings, SourceStats
from tests.scripted_engine import make_stats

PROMPT = 40


def source(kind: Any, rounds: int, drafted: int, accepted: int) -> SourceStats:
    return SourceStats(kind=kind, rounds=rounds, drafted_tokens=drafted, accepted_tokens=accepted)


def outcome(
    tokens: int,
    *sources: SourceStats,
    seconds: tuple[float, ...],
    computed: int = 1,
    reason: str = "stop",
    ttft_s: float | None = 1.0,
    total_s: float = 9.0,
) -> Outcome:
    """`seconds`: queue, prefill, decode, forward, host, neural."""
    stats = msgspec.structs.replace(
        make_stats(PROMPT, tokens, sources),
        timings=EngineTimings(**dict(zip(EngineTimings.__struct_fields__, seconds, strict=True))),
        computed_prefill_tokens=computed,
        cached_tokens=PROMPT - computed,
    )
    return Outcome(
        reason=reason,
        stats=stats,
        completion_tokens=tokens,
        reasoning_tokens=1,
        tool_calls=2,
        timings={"prepare": 0.5, "ttft": ttft_s, "total": total_s},
        archive={},
    )


def test_the_prompt_counts_once_and_the_output_of_all() -> None:
    first = outcome(10, seconds=(1, 2, 3, 2, 1, 0), computed=30)
    both = together([first, outcome(20, seconds=(0, 0, 3, 2, 1, 0))])
    stats = both.stats
    assert (stats.prompt_tokens, stats.cached_tokens) == (PROMPT, 10)
    assert stats.computed_prefill_tokens == 31
    assert (stats.output_tokens, both.completion_tokens) == (30, 30)
    assert (both.reasoning_tokens, both.tool_calls) == (2, 4)


@pytest.mark.parametrize(
    ("other", "decode_s", "forward_s"),
    [((0, 0.5, 2, 1.5, 0.2, 0), 3, 2), ((2, 0.5, 2, 1.5, 0.2, 0.1), 4.5, 1.5)],
    ids=["the first ends last", "the other waited for a row"],
)
def test_the_stages_are_one_way_through_time(
    other: tuple[float, ...], decode_s: float, forward_s: float
) -> None:
    first = outcome(10, seconds=(1, 2, 3, 2, 1, 0.3))
    seconds = together([first, outcome(20, seconds=other)]).stats.timings
    assert (seconds.queue_s, seconds.prefill_s) == (1, 2)
    assert (seconds.decode_s, seconds.forward_s) == (decode_s, forward_s)


def test_text_begins_with_the_first_and_ends_with_the_last() -> None:
    seconds = (0.0,) * 6
    both = together(
        [
            outcome(1, seconds=seconds, ttft_s=None, total_s=3.0),
            outcome(1, seconds=seconds, ttft_s=2.0, total_s=2.5),
        ]
    )
    assert both.timings == {"prepare": 0.5, "ttft": 2.0, "total": 3.0}


def test_drafts_add_up_by_source() -> None:
    seconds = (0.0,) * 6
    first = outcome(9, source("tool", 2, 10, 4), source("output", 1, 5, 5), seconds=seconds)
    other = outcome(9, source("tool", 3, 7, 1), source("prompt", 1, 2, 0), seconds=seconds)
    added = together([first, other]).stats.speculative
    assert added.sources == (
        source("output", 1, 5, 5),
        source("prompt", 1, 2, 0),
        source("tool", 5, 17, 5),
    )
    parts = [first.stats.speculative, other.stats.speculative]
    assert added.drafted_tokens == sum(part.drafted_tokens for part in parts)
    assert added.accepted_per_position == tuple(
        map(sum, zip(*(part.accepted_per_position for part in parts), strict=True))
    )


def test_one_that_was_cancelled_makes_it_cancelled() -> None:
    parts = [outcome(1, seconds=(0.0,) * 6, reason=r) for r in ("length", "cancelled", "stop")]
    assert together(parts).reason == "cancelled"
    assert together(parts[::2]).reason == "length"


class Log:
    def __init__(self) -> None:
        self.lines: list[str] = []

    def request_start(self, request: dict[str, Any]) -> None:
        self.lines.append("start")

    def request_done(self, request: dict[str, Any], outcome: Outcome) -> None:
        self.lines.append("done")

    def request_error(self, request: dict[str, Any], phase: str, error: dict[str, Any]) -> None:
        self.lines.append(f"{phase} {error['code']}")


class Gone:
    """A generation whose engine has just died."""

    described: dict[str, Any] = {"request_id": "r"}  # noqa: RUF012 read only
    ended = False

    def __init__(self, index: int, log: GenerationLog) -> None:
        self.log = log
        self.index = index
        self.on_first: Any = None

    def start(self) -> None:
        if self.index:
            raise EngineDead("the engine is not there")
        self.log.request_start(self.described)

    async def next_events(self, within_s: float | None) -> Any:
        self.on_first()

    async def abandon(self) -> None:
        self.log.request_error(self.described, "cancel", {"code": "engine_dead"})


async def test_an_engine_that_dies_before_the_others_start_is_one_failure() -> None:
    log = Log()

    def make(index: int, log: GenerationLog) -> Generation:
        gone: Any = Gone(index, log)
        return gone  # type: ignore[no-any-return]

    choices = Choices(make, 3, log)
    choices.start()
    with pytest.raises(EngineDead):
        await choices.next_events(5.0)
    assert not choices.ended
    await choices.abandon()
    assert log.lines == ["start", "generate engine_dead"]
