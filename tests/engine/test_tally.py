"""A stop string that the gateway finds later takes back what was accepted behind it."""

import pytest

from services.engine.drafting.draft import Draft
from services.engine.tally import Tally


def copied(tokens: int, *, neural: int = 0) -> Draft:
    return Draft(tuple(range(tokens)), "prompt", neural=neural)


@pytest.mark.parametrize(
    ("stop", "accepted"), [(30, 11), (12, 10), (11, 9), (6, 5), (4, 3), (1, 0)]
)
def test_accepted_tokens_are_never_more_than_the_output_holds(stop: int, accepted: int) -> None:
    tally = Tally(0.0, 8)
    tally.count_round(copied(8), 5, start=1)  # output tokens 1 to 6, the last its bonus
    tally.count_round(None, 0, start=7)
    tally.count_round(copied(8, neural=2), 6, start=8 - 1)
    tally.truncate(stop)
    source = sum(source.accepted for source in tally.sources.values())
    assert source == sum(tally.accepted_per_position)
    assert source == min(11, max(0, min(5, stop - 1)) + max(0, min(6, stop - 7)))
    assert source <= stop
    assert accepted == source


def test_a_neural_start_is_taken_back_last() -> None:
    tally = Tally(0.0, 8)
    tally.count_round(copied(6, neural=2), 6, start=0)
    tally.truncate(3)
    assert {kind: s.accepted for kind, s in tally.sources.items()} == {"neural": 2, "prompt": 1}
    tally = Tally(0.0, 8)
    tally.count_round(copied(6, neural=2), 6, start=0)
    tally.truncate(1)
    assert {kind: s.accepted for kind, s in tally.sources.items()} == {"neural": 1, "prompt": 0}
