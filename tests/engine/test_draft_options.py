"""What the drafting options resolve to, and what is refused."""

from pathlib import Path
from typing import Any

import pytest

from services.engine.config import EngineConfig, resolve
from shared.errors import ConfigError
from shared.messages import EngineLimits


def limits(**options: Any) -> EngineLimits:
    config = EngineConfig(model=Path("m"), sockets=Path("s"), **options)
    return resolve(config, model_id="m", model_context=2048)[0]


@pytest.mark.parametrize(("policy", "shortest"), [("fixed", 12), ("adaptive", 1)])
def test_each_policy_has_its_own_shortest_match(policy: str, shortest: int) -> None:
    assert limits(ngram_policy=policy).ngram_min_match == shortest
    assert limits(ngram_policy=policy, ngram_min_match=8).ngram_min_match == 8


def test_the_adaptive_policy_is_the_default() -> None:
    assert limits().ngram_policy == "adaptive"


def test_a_lookup_opens_the_neural_window() -> None:
    assert (limits().draft_tokens, limits().lookup_ngram) == (0, 0)
    asked = limits(lookup_ngram=4)
    assert (asked.draft_tokens, asked.lookup_ngram) == (5, 4)


@pytest.mark.parametrize("value", [-1, 1, 65])
def test_a_bad_lookup_is_told_that_zero_turns_it_off(value: int) -> None:
    with pytest.raises(ConfigError, match=r"use 0 \(off\) or 2 to 64"):
        limits(lookup_ngram=value)


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("ngram_min_match", 3),
        ("ngram_min_match", 65),
        ("ngram_min_match", 0),
        ("lookup_ngram", 1),
        ("lookup_ngram", 65),
        ("ngram_draft_tokens", 64),
        ("ngram_draft_tokens", -1),
    ],
)
def test_a_value_out_of_range_is_refused_by_its_flag(option: str, value: int) -> None:
    flag = "--" + option.replace("_", "-")
    with pytest.raises(ConfigError, match=f"{flag} {value} is out of range"):
        limits(**{option: value})
