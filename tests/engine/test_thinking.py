"""The thinking budget closes reasoning at an exact token, wherever the rounds lie."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.engine.thinking import ThinkingBudget
from shared.messages import ThinkingLimit

START, END, NOTE = 1, 2, 9


def limit(budget: int, *, is_open: bool = True) -> ThinkingLimit:
    return ThinkingLimit(
        budget_tokens=budget, start_id=START, end_id=END, forced_ids=(NOTE, END), is_open=is_open
    )


def text(budget: ThinkingBudget, draws: Sequence[int], rounds: Sequence[int]) -> list[int]:
    """What is committed if the rounds commit so many tokens each; the model always says `draws`."""
    done: list[int] = []
    for committed in rounds:
        kept = [
            t for t, _ in zip(budget.over(iter(draws[len(done) :])), range(committed), strict=False)
        ]
        budget.observe(kept)
        done += kept
    return done


def test_reasoning_within_its_budget_is_untouched() -> None:
    draws = [5, 6, END, 7, 8, 7, 8]
    assert text(ThinkingBudget(limit(2)), draws, [7]) == draws


@pytest.mark.parametrize("budget", [0, 1, 3])
def test_longer_reasoning_is_closed_at_the_budget(budget: int) -> None:
    draws = [5, 6, 7, 8, 5, 6, 7]
    closed = [*draws[:budget], NOTE, END, *draws[budget + 2 :]]
    assert text(ThinkingBudget(limit(budget)), draws, [7]) == closed


def test_reasoning_that_the_model_opens_is_limited_too() -> None:
    draws = [5, START, 6, 7, 8, 6, 6]
    got = text(ThinkingBudget(limit(1, is_open=False)), draws, [7])
    assert got == [5, START, 6, NOTE, END, 6, 6]


def test_an_answer_without_reasoning_is_never_closed() -> None:
    draws = [5, 6, 7, 8]
    assert text(ThinkingBudget(limit(0, is_open=False)), draws, [4]) == draws


@given(
    st.lists(st.sampled_from([5, 6, START, END]), min_size=1, max_size=30),
    st.integers(0, 10),
    st.booleans(),
    st.lists(st.integers(1, 6), min_size=30, max_size=30),
)
def test_the_text_does_not_depend_on_the_rounds(
    draws: list[int], budget: int, is_open: bool, rounds: list[int]
) -> None:
    one_by_one = text(ThinkingBudget(limit(budget, is_open=is_open)), draws, [1] * len(draws))
    assert text(ThinkingBudget(limit(budget, is_open=is_open)), draws, rounds) == one_by_one
