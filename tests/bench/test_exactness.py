"""The proof of exactness counts what differs, and goes on only from a record of the same kind."""

import argparse
import json
from pathlib import Path

import pytest

from bench.exactness import ROWS, WAYS, Group, bars, distance, recorded
from bench.exactness_workloads import KINDS, conversation

CONDITIONS = {"model": "m", "exact": "on"}


def test_tokens_that_differ_are_counted_place_by_place() -> None:
    assert distance([1, 2, 3], [1, 2, 3]) == 0
    assert distance([1, 2, 3], [1, 9, 3]) == 1
    assert distance([1, 2], [1, 2, 3, 4]) == 2


def test_fifty_thousand_tokens_come_from_different_conversations_of_every_kind() -> None:
    asked = [conversation(number) for number in range(130)]
    assert len({json.dumps(c.messages) for c in asked}) == len({c.name for c in asked}) == 130
    # rows of a group hold several kinds, and each way of decoding alone gets each kind in time
    assert {c.name.rpartition("-")[0] for c in asked[:ROWS]} == set(KINDS)
    assert all(c.tool_texts for c in asked if c.name.startswith("tool-result"))


def test_a_record_is_read_back_and_its_broken_last_line_is_not(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    group = Group(3, tokens=80, looping=2)
    group.differing["alone"] = 1
    whole = json.dumps({**CONDITIONS, **vars(group)})
    path.write_text(f"{whole}\n{whole[:30]}")
    assert recorded(path, CONDITIONS) == {3: group}


def test_a_record_of_other_conditions_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    path.write_text(json.dumps({**CONDITIONS, **vars(Group(0)), "exact": "off"}) + "\n")
    with pytest.raises(SystemExit, match="other conditions"):
        recorded(path, CONDITIONS)


def test_one_differing_token_makes_its_bar_fall_short() -> None:
    good, bad = Group(0, tokens=10), Group(1, tokens=10)
    bad.compared["alone"], bad.differing["alone"], bad.parted["alone"] = 10, 1, 1
    options = argparse.Namespace(dtype="bfloat16", exact="on")
    holds = {bar.name: bar.holds for bar in bars([good, bad], options)}
    assert holds == {f"differing_{way}": way != "alone" for way in WAYS}
