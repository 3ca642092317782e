import itertools

import pytest
import torch

from services.engine.sampler import draws, filtered_probabilities, uniform
from shared.messages import Sampling


def sampling(**changes: float) -> Sampling:
    values = {"temperature": 1.0, "top_p": 1.0, "top_k": 0, "min_p": 0.0, "seed": 7, **changes}
    return Sampling(**values)  # type: ignore[arg-type]


def logits(columns: int, vocab: int = 500, seed: int = 0) -> torch.Tensor:
    return 4 * torch.randn(columns, vocab, generator=torch.Generator().manual_seed(seed))


def test_temperature_zero_is_the_argmax() -> None:
    columns = logits(5)
    assert list(draws(columns, sampling(temperature=0.0), 0)) == columns.argmax(-1).tolist()


@pytest.mark.parametrize("changes", [{}, {"top_k": 5}, {"top_p": 0.8}, {"min_p": 0.1}])
def test_a_draw_depends_on_its_position_not_on_the_columns_beside_it(
    changes: dict[str, float],
) -> None:
    columns = logits(11)
    together = list(draws(columns, sampling(**changes), 100))
    alone = [next(draws(columns[i : i + 1], sampling(**changes), 100 + i)) for i in range(11)]
    assert together == alone


def test_another_seed_gives_other_draws() -> None:
    columns = logits(40)
    assert list(draws(columns, sampling(), 0)) != list(draws(columns, sampling(seed=8), 0))


def test_columns_are_drawn_only_as_far_as_they_are_asked_for() -> None:
    columns = logits(6)
    columns[5] = float("nan")  # would poison the draw if it were computed
    assert len(list(itertools.islice(draws(columns, sampling(), 0), 4))) == 4


def test_draws_follow_the_target_distribution() -> None:
    row = torch.tensor([2.0, 1.0, 0.0, -1.0])
    count = 20_000
    counts = torch.zeros(4)
    for position in range(count):
        counts[next(draws(row.unsqueeze(0), sampling(), position))] += 1
    # 4 standard deviations of a binomial share at p = 0.5
    assert torch.allclose(counts / count, row.softmax(0), atol=4 * (0.25 / count) ** 0.5)


def test_top_k_keeps_exactly_the_k_largest() -> None:
    kept = filtered_probabilities(logits(3), sampling(top_k=7)) > 0
    assert kept.sum(-1).tolist() == [7, 7, 7]


def test_top_p_keeps_the_smallest_set_that_reaches_the_mass() -> None:
    row = torch.tensor([[0.5, 0.3, 0.15, 0.05]]).log()
    kept = filtered_probabilities(row, sampling(top_p=0.7)) > 0
    assert kept.tolist() == [[True, True, False, False]]


def test_top_p_is_right_on_a_flat_distribution_wider_than_the_candidates() -> None:
    flat = torch.zeros(1, 5000) + torch.linspace(0, 1e-3, 5000)
    kept = (filtered_probabilities(flat, sampling(top_p=0.9)) > 0).sum()
    assert 4490 <= int(kept) <= 4510


def test_min_p_is_relative_to_the_most_probable_token() -> None:
    row = torch.tensor([[0.6, 0.3, 0.07, 0.03]]).log()
    kept = filtered_probabilities(row, sampling(min_p=0.1)) > 0
    assert kept.tolist() == [[True, True, True, False]]


def test_tokens_without_mass_are_never_drawn() -> None:
    row = torch.full((1, 100), float("-inf"))
    row[0, 40:43] = 0.0
    drawn = {next(draws(row, sampling(seed=s), 3)) for s in range(300)}
    assert drawn == {40, 41, 42}


def test_uniform_numbers_fill_the_unit_interval() -> None:
    numbers = torch.tensor([uniform(s, p) for s in range(40) for p in range(100)])
    assert float(numbers.min()) >= 0.0
    assert float(numbers.max()) < 1.0
    assert torch.histc(numbers, 10, 0.0, 1.0).min() > 300
    assert uniform(2**64 - 1, 2**31) != uniform(2**64 - 1, 2**31 + 1)


@pytest.mark.parametrize(
    "changes",
    [
        {"temperature": 1e-40},
        {"temperature": 1e-30},
        {"temperature": 1e-6},
        {"top_p": 1e-50},
        {"min_p": 1.0},
    ],
)
def test_extreme_settings_are_as_good_as_greedy(changes: dict[str, float]) -> None:
    columns = logits(6)
    assert list(draws(columns, sampling(**changes), 0)) == columns.argmax(-1).tolist()
