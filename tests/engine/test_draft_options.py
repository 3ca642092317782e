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


def neural(**options: Any) -> EngineLimits:
    config = EngineConfig(model=Path("m"), sockets=Path("s"), **options)
    return resolve(config, model_id="m", model_context=2048, drafters=("mtp",))[0]


def test_a_drafter_brings_its_window_and_copies_with_it() -> None:
    found = neural(spec="mtp")
    assert (found.spec, found.draft_tokens, found.ngram_draft_tokens) == ("mtp", 3, 15)
    assert neural(spec="mtp", ngram_policy="fixed").ngram_min_match == 12
    assert neural(spec="mtp", ngram_draft_tokens=0, draft_tokens=15).ngram_draft_tokens == 0
    assert neural(spec="mtp", lookup_ngram=4, draft_tokens=2).draft_tokens == 2


@pytest.mark.parametrize("value", [0, 16, -1])
def test_a_neural_window_out_of_range_is_refused(value: int) -> None:
    with pytest.raises(ConfigError, match=r"--draft-tokens .* use 1 to 15"):
        neural(spec="mtp", draft_tokens=value)


def test_a_model_without_the_drafter_is_told_to_copy_alone() -> None:
    with pytest.raises(ConfigError, match="m has no such drafter; use --spec off"):
        limits(spec="mtp")
    with pytest.raises(ConfigError, match="no such drafter"):
        neural(spec="dflash")


@pytest.mark.parametrize(
    "options", [{"draft_tokens": 3}, {"adaptive_mtp": True}, {"lm_head_draft": True}], ids=str
)
def test_a_neural_option_without_a_drafter_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="needs a neural drafter: set --spec"):
        neural(**options)
