"""Texts are compared before any speed is shown, and counters reach every form of the report."""

import csv
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bench.serving.client import Answer, Card
from bench.serving.command import OTHER, Outcome, main, report
from bench.serving.config import plan
from bench.serving.equality import compare
from bench.serving.measure import problem_of
from bench.serving.picture import figure_of
from bench.serving.report import speed_vs_off
from bench.serving.result import COUNTERS, Cell, CellKey, Run
from bench.serving.workloads import AGAIN, EDITED, WORKLOADS, Turn, filler, numbered
from bench.texts import INVENTORY
from shared.errors import ConfigError

SPECULATIVE: dict[str, Any] = {
    "rounds": 3,
    "fallback_steps": 2,
    "num_draft_tokens": 20,
    "num_accepted_tokens": 16,
    **{name: number for number, name in enumerate(COUNTERS, start=1)},
}
ANSWER = Answer(
    text="the same text",
    finish_reason="length",
    prompt_tokens=100,
    output_tokens=21,
    reused_tokens=40,
    ttft_s=0.5,
    decode_s=2.0,
    timings={"predicted_per_second": 11.0},
    speculative=SPECULATIVE,
)
CARD = Card("m", "ninfer", 2048, True)


def cell(name: str, *, cache: str = "cold", seconds: tuple[float, ...] = (2.0,), **fields: Any):
    answer = replace(ANSWER, **fields)
    runs = [Run(i, replace(answer, decode_s=s), 0.25) for i, s in enumerate(seconds)]
    return Cell(CellKey("edits", "short", cache, name), tuple(runs))


def outcome(*cells: Cell, exact: bool = True) -> Outcome:
    cards = {c.key.configuration: replace(CARD, exact=exact) for c in cells}
    names = [name for name in cards if name != OTHER]
    return Outcome(list(cells), cards, compare(cells, names))


def test_equal_texts_give_a_table_with_every_figure(capsys: pytest.CaptureFixture[str]) -> None:
    found = outcome(cell("off", seconds=(4.0, 5.0, 6.0)), cell("on", seconds=(1.0, 2.0, 4.0)))
    assert report(plan(["--contexts=short"]), found) == 0
    out, err = capsys.readouterr()
    assert "texts equal to those without copies: 3 of 3" in err
    (line,) = [line for line in out.splitlines() if " on " in line]
    for figure in ("60 + 40", "10.0 (5.0..20.0)", "2.50", "4.00", "48/60", "25 %"):
        assert figure in line


def test_no_speed_is_shown_where_an_exact_model_gave_another_text(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    found = outcome(cell("off"), cell("on", text="the same test"))
    assert report(plan([f"--csv={tmp_path / 'rows.csv'}"]), found) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert "edits, short, cold, on, repeat 1: at character 11 it says 'st'" in err
    assert not (tmp_path / "rows.csv").exists()


def test_a_json_report_of_differing_texts_has_no_speeds(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    whole = tmp_path / "run.json"
    found = outcome(cell("off"), cell("on", text="the same test"))
    assert report(plan([f"--json={whole}"]), found) == 1
    told = json.loads(whole.read_text())
    assert told["rows"] == []
    assert len(told["texts"]["differences"]) == 1


def test_a_model_that_is_not_exact_may_differ(capsys: pytest.CaptureFixture[str]) -> None:
    found = outcome(cell("off"), cell("on", text="another"), exact=False)
    assert report(plan([]), found) == 0
    out, err = capsys.readouterr()
    assert "0 of 1 (the server does not claim to be exact)" in err
    assert "10.0" in out


def test_a_text_from_the_cache_is_compared_too() -> None:
    found = compare([cell("off"), cell("off", cache="cached", text="x")], ["off"])
    assert (found.compared, len(found.differences)) == (1, 1)


def test_an_answer_that_is_missing_is_a_difference() -> None:
    found = compare([cell("off", seconds=(1, 1)), cell("on")], ["off", "on"])
    assert found.differences == ["edits, short, cold, on, repeat 2: no answer"]


def test_another_servers_texts_are_counted_but_decide_nothing(
    capsys: pytest.CaptureFixture[str],
) -> None:
    argv = ["--compare=http://h", "--compare-texts"]
    assert report(plan(argv), outcome(cell("off"), cell(OTHER, text="theirs"))) == 0
    assert "texts of http://h equal to ours: 0 of 1" in capsys.readouterr().err


def test_a_request_that_nobody_answered_fails_the_run(capsys: pytest.CaptureFixture[str]) -> None:
    refused = Cell(CellKey("edits", "short", "cold", "off"), (), refused="no room")
    assert report(plan([]), outcome(refused)) == 1
    assert "edits short cold off: no room" in capsys.readouterr().out


def test_csv_and_json_keep_the_counters(tmp_path: Path) -> None:
    rows, whole = tmp_path / "rows.csv", tmp_path / "run.json"
    found = outcome(cell("off"), cell("on", seconds=(1.0, 2.0)))
    assert report(plan([f"--csv={rows}", f"--json={whole}"]), found) == 0
    with rows.open(encoding="utf-8") as file:
        lines = list(csv.DictReader(file))
    told = json.loads(whole.read_text())
    for name, number in SPECULATIVE.items():
        if name in COUNTERS:
            assert lines[1][name] == str(2 * number)  # two repeats
            assert told["rows"][1][name] == 2 * number
            assert told["rows"][1]["runs"][0]["speculative"][name] == number
    assert "the same text" not in whole.read_text()
    assert told["servers"]["on"]["exact"] is True


def test_a_broken_copy_has_no_speed(capsys: pytest.CaptureFixture[str]) -> None:
    bad = replace(cell("on"), problem="only 3 of 90 characters are a copy")
    cells = [cell("off"), bad]
    assert speed_vs_off(bad, cells) is None
    report(plan([]), outcome(*cells))
    out = capsys.readouterr().out
    assert "no copy" in out
    assert "only 3 of 90 characters are a copy" in out


def test_answers_are_held_to_what_they_must_be() -> None:
    held = Turn("edits", [], held=EDITED)
    copied = Turn("raw-copy", [], source=INVENTORY)
    assert problem_of(held, replace(ANSWER, text=EDITED[:50])) is None
    assert problem_of(held, replace(ANSWER, text="import jsom")) is not None
    assert problem_of(copied, replace(ANSWER, text=INVENTORY[30:400])) is None
    assert problem_of(copied, replace(ANSWER, text="import json. " * 30)) is not None
    assert problem_of(Turn("reasoning", []), ANSWER) is None


def test_the_edits_insert_delete_and_change() -> None:
    before, after = set(INVENTORY.splitlines()), set(EDITED.splitlines())
    assert "    def clear(self) -> None:" in after - before
    assert "        if count < 0:" in before - after
    assert len(after - before) == 3
    assert "    def names(self) -> list[str]:" in AGAIN
    assert "LookupError" in AGAIN


def test_a_session_repeats_its_history() -> None:
    first, second, third = WORKLOADS["coding-session"](filler(3), free=True)
    assert second.messages[: len(first.messages)] == first.messages
    assert third.messages[: len(second.messages)] == second.messages
    assert "Entry 2:" in first.messages[0]["content"]
    assert numbered("a\nb\n") == "     1\ta\n     2\tb\n"


def test_the_picture_has_a_bar_for_each_cold_cell() -> None:
    cells = [cell("off"), cell("on"), cell("on", cache="cached")]
    (axes,) = figure_of(cells).axes
    assert sum(len(group) for group in axes.containers if hasattr(group, "patches")) == 2


def test_files_that_could_not_be_written_are_refused_before_the_run(
    tmp_path: Path,
) -> None:
    with pytest.raises(ConfigError, match="its folder does not exist"):
        main([f"--json={tmp_path / 'none' / 'x.json'}"])
