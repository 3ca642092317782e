import pytest

from services.engine.drafting.cost import RoundCost


def test_a_linear_curve_adds_the_same_for_each_column() -> None:
    added = RoundCost.linear(0.05).added(1, 4)
    assert added == pytest.approx([0.0, 0.05, 0.10, 0.15, 0.20])


def test_a_pass_that_is_wide_already_stands_further_along_the_curve() -> None:
    curve = RoundCost({1: 10.0, 4: 10.0, 8: 30.0}, follows=False)
    assert curve.added(1, 3) == [0.0, 0.0, 0.0, 0.0]
    assert curve.added(4, 2) == [0.0, 0.5, 1.0]


def test_the_last_slope_goes_on_behind_the_widest_measurement() -> None:
    assert RoundCost({1: 1.0, 2: 1.5}, follows=False).of(11) == 6.0


def test_a_measured_curve_follows_the_rounds_that_ran() -> None:
    curve = RoundCost({1: 1.0, 64: 2.0}, follows=True)
    for _ in range(200):
        curve.observe(64, 4.0)
        curve.observe(1, 1.0)
    assert curve.of(64) == pytest.approx(4.0, rel=0.02)


def test_one_slow_round_hardly_moves_the_curve() -> None:
    curve = RoundCost({1: 1.0, 64: 2.0}, follows=True)
    curve.observe(64, 1000.0)
    assert curve.of(64) <= 2.2


def test_a_curve_that_is_given_stays_as_it_is() -> None:
    curve = RoundCost.linear(0.01)
    curve.observe(64, 100.0)
    assert curve.of(65) == pytest.approx(1.64)


@pytest.mark.parametrize("points", [{1: 1.0}, {2: 1.0, 4: 2.0}, {1: 0.0, 2: 1.0}])
def test_points_that_make_no_curve_are_refused(points: dict[int, float]) -> None:
    with pytest.raises(ValueError, match="cost curve"):
        RoundCost(points, follows=False)


def test_context_makes_columns_dearer_and_a_single_column_too() -> None:
    curve = RoundCost({1: 10.0, 11: 20.0}, follows=False, per_attended=0.001)
    assert curve.added(1, 1) == pytest.approx([0.0, 0.1])
    # behind 10,240 tokens one column costs 20.24, and a further one 1 + 10.24
    assert curve.added(1, 1, 10_240) == pytest.approx([0.0, 11.24 / 20.24])
    assert curve.of(2, 10_240) == pytest.approx((20.24 + 11.24) / 20.24)


def test_what_context_costs_does_not_move_the_curve() -> None:
    curve = RoundCost({1: 10.0, 11: 20.0}, follows=True, per_attended=0.001)
    for _ in range(100):
        curve.observe(11, 20.0 + 0.001 * 11 * 8000, attended=11 * 8000)
    assert curve.of(11) == pytest.approx(2.0)
