import pytest

from services.engine.drafting.neural_window import FIRST_PROBE, LAST_PROBE, NeuralWindow

FREE = [0.0] * 16
RATE = 1.0


def linear(each: float) -> list[float]:
    return [each * n for n in range(16)]


def taught(window: NeuralWindow, accepted: list[int], *, drafted: int = 3) -> NeuralWindow:
    for count in accepted:
        window.observe(drafted, count)
    return window


def test_free_drafts_are_asked_for_at_full_width() -> None:
    assert NeuralWindow(3, adaptive=False).choose(3, FREE, RATE).drafts == 3
    assert NeuralWindow(3, adaptive=True).choose(3, FREE, RATE).drafts == 3


def test_no_more_than_the_room_is_asked_for() -> None:
    assert NeuralWindow(5, adaptive=False).choose(2, FREE, RATE).drafts == 2


def test_drafts_that_cost_more_than_they_yield_are_not_asked_for() -> None:
    assert NeuralWindow(3, adaptive=False).choose(3, linear(2.0), RATE).drafts == 0


def test_without_adapting_it_is_all_or_nothing() -> None:
    """Only the first draft is ever right; each costs a quarter of what it would yield."""
    fixed = taught(NeuralWindow(3, adaptive=False), [1] * 40)
    adaptive = taught(NeuralWindow(3, adaptive=True), [1] * 40)
    assert fixed.choose(3, linear(0.25), RATE).drafts == 3
    assert adaptive.choose(3, linear(0.25), RATE).drafts == 1


def test_a_better_drafter_gets_a_wider_window() -> None:
    widths = [
        taught(NeuralWindow(7, adaptive=True), [hits] * 40, drafted=7)
        .choose(7, linear(0.3), RATE)
        .drafts
        for hits in (0, 2, 7)
    ]
    assert widths == [0, 2, 7]


def test_a_depth_counts_only_where_it_was_reached() -> None:
    """Half of the rounds accept all, the others nothing: the chain is right or wrong at once."""
    window = taught(NeuralWindow(3, adaptive=False), [3, 0] * 40)
    assert window.expected(1) == pytest.approx(0.5, abs=0.05)
    assert window.expected(3) == pytest.approx(1.5, abs=0.15)


def test_a_drafter_that_is_never_right_is_given_up_within_32_rounds() -> None:
    window = NeuralWindow(3, adaptive=False)
    rounds = 0
    while window.choose(3, linear(0.007), 0.9).drafts:
        window.observe(3, 0)
        rounds += 1
    assert 0 < rounds <= 32


def test_probes_become_rare_while_they_fail_and_a_hit_brings_them_back() -> None:
    window = NeuralWindow(3, adaptive=False)
    gaps = []
    for _ in range(6):
        gaps.append(wait(window))
        window.observe(3, 0)
    assert gaps == [32, 64, 128, 256, 512, LAST_PROBE]
    wait(window)
    window.observe(3, 2)
    assert wait(window) == FIRST_PROBE


def wait(window: NeuralWindow) -> int:
    """Rounds without neural drafts until a probe is due."""
    rounds = 0
    while not window.is_probe_due():
        window.skip()
        rounds += 1
    return rounds
