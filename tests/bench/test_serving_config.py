"""What ninfer-bench takes, and which servers it makes of it."""

import dataclasses

import pytest

from bench.serving.config import OURS, bench_config, plan
from services.engine.config import EngineConfig
from shared import options
from shared.errors import ConfigError


def flags_of(*argv: str) -> dict[str, tuple[str, ...]]:
    return {c.name: c.flags for c in plan(argv).configurations}


def test_every_option_of_the_engine_is_taken() -> None:
    ours = options.flags(bench_config())
    assert [name for name in options.flags(EngineConfig) if name not in (*ours, *OURS)] == []


def test_off_and_on_differ_in_their_copies_alone() -> None:
    assert flags_of() == {
        "off": ("--ngram-draft-tokens=0",),
        "on": ("--ngram-draft-tokens=15",),
    }
    given = ("--spec=mtp", "--draft-tokens=2", "--ngram-draft-tokens=63", "--lm-head-draft")
    found = flags_of(*given, "--ngram-policy=fixed", "--ngram-min-match=8")
    assert set(found["on"]) ^ set(found["off"]) == {
        "--ngram-draft-tokens=0",
        "--ngram-draft-tokens=63",
    }
    assert "--spec=mtp" in found["off"]
    assert "--ngram-min-match=8" in found["on"]


def test_a_sweep_is_a_server_a_value() -> None:
    found = flags_of("--sweep=ngram-draft-tokens=15,63", "--threads=2")
    assert found == {
        "off": ("--threads=2", "--ngram-draft-tokens=0"),
        "ngram-draft-tokens=15": ("--threads=2", "--ngram-draft-tokens=15"),
        "ngram-draft-tokens=63": ("--threads=2", "--ngram-draft-tokens=63"),
    }


def test_one_server_turns_copies_off_by_request() -> None:
    off, on = plan(["--one-server"]).configurations
    assert off.flags == on.flags == ("--ngram-draft-tokens=15",)
    assert (off.ninfer, on.ninfer) == ({"ngram_draft_tokens": 0}, {})


def test_a_running_server_gets_no_flags() -> None:
    off, on = plan(["--url=http://127.0.0.1:8080", "--quick"]).configurations
    assert off.flags == on.flags == ()
    assert off.ninfer == {"ngram_draft_tokens": 0}


def test_quick_keeps_what_was_asked_for() -> None:
    assert "--max-context=2048" in flags_of("--quick")["on"]
    assert "--max-context=4000" in flags_of("--quick", "--max-context=4000")["on"]
    quick = plan(["--quick", "--output-tokens=32", "--workloads=edits,reasoning"])
    assert (quick.config.repeats, quick.config.output_tokens) == (1, 32)
    assert quick.workloads == ("edits", "reasoning")


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (["--ngram-draft-tokens=0"], "off against off"),
        (["--repeats=0"], "--repeats 0 is out of range; use 1 to 100"),
        (["--output-tokens=5"], "--output-tokens 5 is out of range"),
        (["--start-s=0"], "--start-s 0.0 is out of range"),
        (["--workloads=raw"], "--workloads 'raw' is unknown; use raw-copy"),
        (["--contexts=long"], "--contexts 'long' is unknown"),
        (["--url=127.0.0.1"], "does not begin with http"),
        (["--compare=127.0.0.1"], "does not begin with http"),
        (["--compare-texts"], "--compare-texts needs --compare"),
        (["--api-key=k"], "--api-key needs --url"),
        (["--url=http://h", "--threads=2"], "--threads has no effect on a server that runs"),
        (["--url=http://h", "--model=m"], "--model has no effect"),
        (["--sweep=port=1"], "name an engine's option"),
        (["--sweep=threads"], "name an engine's option"),
        (["--sweep=threads=x"], "invalid int value"),
        (["--sweep=threads=1", "--one-server"], "leave out --one-server"),
        (["--nothing"], "unrecognized arguments: --nothing"),
    ],
)
def test_what_cannot_be_is_refused_in_a_sentence(argv: list[str], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        plan(argv)


def test_an_options_default_is_the_engines_but_for_copies() -> None:
    ours = {f.name: f.default for f in dataclasses.fields(bench_config())}
    differ = {
        f.name
        for f in dataclasses.fields(EngineConfig)
        if f.name not in OURS and ours[f.name] != f.default
    }
    assert differ == {"ngram_draft_tokens"}
