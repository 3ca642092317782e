"""The planner by tables: who gets how many columns, and how many drafts may follow."""

import pytest

from services.engine.planner import PlanLimits, Progress, plan

LIMITS = PlanLimits(prefill_chunk=100, draft_width=15, max_context=1000)


def decoding(name: str, target: int = 50, remaining: int = 100) -> Progress:
    return Progress(name, computed=target - 1, target=target, remaining=remaining)


def prefilling(name: str, computed: int, target: int) -> Progress:
    return Progress(name, computed=computed, target=target, remaining=100)


def columns(*requests: Progress) -> list[tuple[str, int, int, bool]]:
    return [(r.request_id, r.start, r.columns, r.samples) for r in plan(requests, LIMITS)]


def test_nothing_to_do_gives_an_empty_plan() -> None:
    assert plan([], LIMITS) == ()


def test_a_decoding_row_computes_its_anchor_and_samples() -> None:
    assert columns(decoding("a")) == [("a", 49, 1, True)]


def test_a_short_prompt_is_computed_whole_and_samples() -> None:
    assert columns(prefilling("a", 0, 100)) == [("a", 0, 100, True)]


def test_a_long_prompt_takes_one_chunk_and_does_not_sample() -> None:
    assert columns(prefilling("a", 0, 250)) == [("a", 0, 100, False)]


def test_the_last_chunk_of_a_prompt_samples() -> None:
    assert columns(prefilling("a", 200, 250)) == [("a", 200, 50, True)]


def test_decoding_rows_go_on_beside_a_long_prompt() -> None:
    rows = columns(prefilling("long", 0, 900), decoding("b"), decoding("c"))
    assert rows == [("long", 0, 100, False), ("b", 49, 1, True), ("c", 49, 1, True)]


def test_prompts_share_one_chunk_in_order_of_admission() -> None:
    rows = columns(prefilling("a", 0, 60), prefilling("b", 0, 60), prefilling("c", 0, 60))
    assert rows == [("a", 0, 60, True), ("b", 0, 40, False)]


@pytest.mark.parametrize(
    ("target", "remaining", "room"),
    [
        (50, 100, 15),  # the width
        (50, 8, 7),  # the output budget keeps one column for the recovered or bonus token
        (50, 2, 1),
        (50, 1, 0),  # the last token is never drafted
        (990, 100, 9),  # drafts and the token behind them fit the context
        (999, 1, 0),
    ],
)
def test_draft_room_fits_width_budget_and_context(target: int, remaining: int, room: int) -> None:
    (row,) = plan([decoding("a", target, remaining)], LIMITS)
    assert row.draft_room == room


def test_a_prompt_row_has_no_draft_room() -> None:
    (row,) = plan([prefilling("a", 0, 50)], LIMITS)
    assert row.draft_room == 0
