"""`ninfer-bench` starts its own server on the demo model, and its workloads really copy."""

import json
from pathlib import Path

import pytest

from bench.serving.command import main

pytestmark = [pytest.mark.real, pytest.mark.timeout(180)]


def test_texts_are_equal_and_copies_accepted(
    demo_model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = tmp_path / "run.json"
    argv = [
        f"--model={demo_model}",
        "--quick",
        "--one-server",
        "--workloads=raw-copy,numbered-copy",
    ]
    argv += ["--contexts=short", "--output-tokens=32", f"--json={whole}"]
    status = main(argv)
    out, err = capsys.readouterr()
    assert status == 0, err
    told = json.loads(whole.read_text())
    assert told["texts"] == {"compared": 6, "differences": []}
    for row in told["rows"]:
        assert row["problem"] is None
        copies = row["configuration"] == "on"
        assert (row["ngram_accepted_tokens"] >= 16) == copies
        assert (row["tokens_per_pass"] > 2) == copies
        assert (row["computed_prefill_tokens"] == 1) == (row["cache"] == "cached")
    sources = {
        row["workload"]: row["runs"][0]["speculative"]["sources"]
        for row in told["rows"]
        if row["configuration"] == "on" and row["cache"] == "cold"
    }
    assert sources["numbered-copy"]["derived"]["accepted_tokens"] >= 16
    assert "raw-copy" in out
