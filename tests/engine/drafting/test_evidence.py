import json
from importlib import resources

import pytest

from services.engine.drafting.evidence import (
    BUCKETS,
    DEPTHS,
    LENGTHS,
    PLACES,
    TIES,
    Evidence,
    Priors,
    Survival,
    best_width,
    learned,
)

EVEN = Priors([[0.5] * len(DEPTHS) for _ in range(BUCKETS)])
FREE = [0.0] * 64


def evidence(length: int = 20, place: int = 0, ties: int = 0, recent: float = 0.0) -> Evidence:
    return Evidence(place, length, ties, recent)


def test_every_kind_of_evidence_has_a_bucket_of_its_own() -> None:
    buckets = {
        evidence(length, place, ties, recent).bucket
        for length in LENGTHS
        for place in range(len(PLACES))
        for ties in range(len(TIES))
        for recent in (0.5, 2.0, 9.0)
    }
    assert buckets == set(range(BUCKETS))


def test_the_learned_priors_fit_the_buckets_and_are_chances() -> None:
    assert all(0 < chance < 1 for row in learned().hazards for chance in row)


def test_longer_matches_survive_better_in_the_learned_priors() -> None:
    first = [learned().hazards[evidence(length, place=2).bucket][0] for length in LENGTHS]
    assert first[-1] > 0.8 > 0.5 > first[0]


def test_priors_say_where_they_come_from() -> None:
    path = resources.files("services.engine.drafting").joinpath("priors.json")
    document = json.loads(path.read_text(encoding="utf-8"))
    assert document["learned_by"].startswith("python -m bench replay learn")
    assert document["pairs"]
    assert document["rounds"] > 10_000


@pytest.mark.parametrize("rows", [BUCKETS - 1, BUCKETS + 1])
def test_priors_of_other_buckets_are_refused(rows: int) -> None:
    with pytest.raises(ValueError, match="does not fit"):
        Priors.parse({"hazards": [[0.5] * len(DEPTHS)] * rows})


def test_a_requests_own_hits_move_its_bucket_and_leave_the_priors() -> None:
    survival = Survival(EVEN)
    for _ in range(20):
        survival.observe(evidence(), drafted=4, accepted=4)
    chances = survival.hazards(evidence())
    assert chances[0] > 0.8
    assert chances[DEPTHS.index(63)] == 0.5
    assert EVEN.hazards[evidence().bucket][0] == 0.5


def test_failures_on_long_matches_make_other_long_matches_less_likely_but_not_short_ones() -> None:
    survival = Survival(EVEN)
    for _ in range(20):
        survival.observe(evidence(place=0), drafted=8, accepted=0)
    assert survival.hazards(evidence(place=2))[0] < 0.2
    assert survival.hazards(evidence(length=2))[0] == 0.5


def test_depths_behind_the_first_rejected_draft_were_not_tried() -> None:
    survival = Survival(EVEN)
    survival.observe(evidence(), drafted=8, accepted=2)
    chances = survival.hazards(evidence())
    assert chances[1] > 0.5 > chances[2]
    assert chances[3] == 0.5


def test_free_columns_are_all_used() -> None:
    assert best_width([0.9] * len(DEPTHS), 15, FREE, 3.0).drafts == 15


def test_the_width_ends_where_a_column_costs_more_than_it_yields() -> None:
    added = [0.1 * w for w in range(64)]
    # 0.9 a token: the marginal token is worth 0.9 ** w, which falls below 0.5 behind w = 6
    each = [0.9 ** (b - a) for a, b in zip((0, *DEPTHS), DEPTHS, strict=False)]
    assert best_width(each, 63, added, 5.0).drafts == 6


def test_nothing_is_drafted_that_cannot_pay() -> None:
    assert best_width([0.1] * len(DEPTHS), 63, [0.1 * w for w in range(64)], 3.0).drafts == 0


def test_the_value_is_the_expected_tokens_less_their_cost() -> None:
    width = best_width([0.5] * len(DEPTHS), 2, [0.0, 0.1, 0.2], 1.0)
    assert width.drafts == 2
    assert width.value == pytest.approx(0.5 + 0.25 - 0.2)


def test_a_copy_behind_uncertain_tokens_is_worth_as_much_less() -> None:
    sure, unsure = (best_width([0.9] * len(DEPTHS), 8, FREE, 1.0, first) for first in (1.0, 0.5))
    assert unsure.value == pytest.approx(sure.value / 2)
