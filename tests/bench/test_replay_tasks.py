"""Replay tasks come out of edits as an agent would write them."""

import subprocess
from pathlib import Path

import pytest

from bench.replay.edits import apply_patch, half_done, search_replace, unified
from bench.replay.packages import PackagePair

OLD = "".join(f"line {i}\n" for i in range(40))
NEW = OLD.replace("line 5\n", "line five\n").replace("line 30\n", "line 30\nadded\n")


def test_search_replace_blocks_make_the_edit() -> None:
    text = OLD
    blocks = search_replace(OLD, NEW).split(">>>>>>> REPLACE\n")[:-1]
    assert len(blocks) == 2
    for block in blocks:
        searched, replaced = block.split("<<<<<<< SEARCH\n")[1].split("=======\n")
        assert text.count(searched) == 1
        text = text.replace(searched, replaced)
    assert text == NEW


def test_a_unified_diff_is_one_that_patch_applies(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text(OLD)
    diff = unified("a.py", OLD, NEW)
    subprocess.run(
        ["git", "apply", "-"], input=diff, text=True, cwd=tmp_path, check=True, timeout=30
    )
    assert (tmp_path / "a.py").read_text() == NEW


def test_apply_patch_has_no_line_numbers() -> None:
    lines = apply_patch("a.py", OLD, NEW).splitlines()
    assert lines[:3] == ["*** Begin Patch", "*** Update File: a.py", "@@"]
    assert lines[-1] == "*** End Patch"
    assert lines.count("@@") == 2
    assert {line[0] for line in lines[3:-1]} <= {" ", "+", "-", "@"}


def test_half_done_makes_every_second_change() -> None:
    assert half_done(OLD, NEW) == OLD.replace("line 5\n", "line five\n")


@pytest.mark.parametrize("text", ["flask", "flask:1", "flask:1:", ":1:2", "a:1:2:3"])
def test_a_malformed_pair_is_refused_by_name(text: str) -> None:
    with pytest.raises(ValueError, match="NAME:OLD_VERSION:NEW_VERSION"):
        PackagePair.parse(text)
