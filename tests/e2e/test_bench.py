"""`ninfer-bench` on servers that run, one beside the other."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from bench.serving.command import OTHER, main
from tests.e2e.conftest import Server

pytestmark = pytest.mark.e2e


def test_it_measures_a_server_that_runs_and_another_beside_it(
    server: Server,
    launch: Callable[..., Server],
    tiny_model: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    other = launch(tiny_model, "--model-id=second", "--api-key=secret")
    whole = tmp_path / "run.json"
    status = main(
        [
            f"--url={server.url}",
            f"--compare={other.url}",
            "--compare-key=secret",
            "--compare-texts",
            "--workloads=reasoning",
            "--repeats=2",
            "--output-tokens=32",
            f"--json={whole}",
        ]
    )
    out, err = capsys.readouterr()
    assert status == 0, err
    told = json.loads(whole.read_text())
    assert told["servers"][OTHER]["model"] == "second"
    assert told["texts"]["compared"] == 12  # 2 contexts, 2 repeats, 3 cells beside the reference
    rows = {(r["context"], r["cache"], r["configuration"]): r for r in told["rows"]}
    assert len(rows) == 12
    # the salt keeps caches apart, so cold is cold on each side, and again only the anchor is new
    assert {r["reused_prefill_tokens"] for key, r in rows.items() if key[1] == "cold"} == {0}
    assert {r["computed_prefill_tokens"] for key, r in rows.items() if key[1] == "cached"} == {1}
    near = rows["near", "cold", "on"]
    assert 1024 - 32 - 64 < near["prompt_tokens"] <= 1024 - 32
    assert rows["short", "cold", "off"]["ngram_drafted_tokens"] == 0
    assert "equal to ours: 8 of 8" in err
    assert "reasoning" in out


def test_a_server_of_another_kind_is_not_measured_as_ours(
    launch: Callable[..., Server], tiny_model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    locked = launch(tiny_model, "--api-key=secret")
    assert main([f"--url={locked.url}", "--quick"]) == 1
    assert "answered 401" in capsys.readouterr().err


def test_it_starts_a_server_for_each_configuration(
    tiny_model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows, drawn = tmp_path / "rows.csv", tmp_path / "run.svg"
    argv = [f"--model={tiny_model}", "--workloads=reasoning", "--contexts=short", "--repeats=1"]
    argv += ["--output-tokens=16", "--max-context=512", f"--csv={rows}", f"--plot={drawn}"]
    assert main(argv) == 0, capsys.readouterr().err
    assert len(rows.read_text().splitlines()) == 5
    assert drawn.read_text().startswith("<?xml")
    assert "--max-context=512 --ngram-draft-tokens=0" in capsys.readouterr().err


def test_a_server_that_does_not_start_says_why(tiny_model: Path) -> None:
    with pytest.raises(SystemExit, match="--max-context 5000 is out of range"):
        main([f"--model={tiny_model}", "--max-context=5000"])
