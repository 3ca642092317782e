"""A real server with a neural drafter: the same answer, and a log that says what was drafted."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.conftest import Server
from tests.engine.chain_model import write_chain

pytestmark = pytest.mark.e2e

BODY = {
    "messages": [{"role": "user", "content": "Say something."}],
    "max_tokens": 40,
    "temperature": 0,
}


@pytest.fixture
def model(tmp_path: Path) -> Path:
    write_chain(tmp_path / "chain", seed=4)
    return tmp_path / "chain"


def answer(server: Server, **more: Any) -> tuple[str, dict[str, Any]]:
    reply = server.post({**BODY, **more}).json()
    server.stop()
    done = [
        line
        for line in map(json.loads, server.log.read_text().splitlines())
        if line["event"] == "request_done"
    ]
    text: str = reply["choices"][0]["message"]["content"]
    return text, done[-1]


def test_the_answer_is_that_without_a_drafter(launch: Callable[..., Server], model: Path) -> None:
    expected, _ = answer(launch(model, "--dtype=float32"))
    flags = ("--spec=mtp", "--draft-tokens=4", "--adaptive-mtp", "--ngram-draft-tokens=0")
    server = launch(model, "--dtype=float32", *flags)
    text, line = answer(server)
    assert text == expected
    speculative = line["speculative"]
    assert speculative["backend"] == "mtp"
    neural = next(s for s in speculative["sources"] if s["kind"] == "neural")
    assert 0 < neural["accepted_tokens"] <= neural["drafted_tokens"]
    assert line["result"]["decode_passes"] < 39
    assert 0 < line["timings_seconds"]["neural"] < line["timings_seconds"]["host"]


def test_a_request_may_do_without_neural_drafts(launch: Callable[..., Server], model: Path) -> None:
    server = launch(model, "--spec=mtp", "--ngram-draft-tokens=0")
    _, line = answer(server, ninfer={"draft_tokens": 0})
    assert line["speculative"]["drafted_tokens"] == 0


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        (["--spec=mtp"], "tiny has no such drafter"),
        (["--draft-tokens=3"], "--draft-tokens needs a neural drafter"),
    ],
    ids=["none", "without --spec"],
)
def test_what_cannot_work_is_refused_in_a_sentence(
    tiny_model: Path, flags: list[str], sentence: str
) -> None:
    argv = [sys.executable, "-m", "services.launch", f"--model={tiny_model}", "--port=8099", *flags]
    ended = subprocess.run(argv, capture_output=True, text=True, timeout=50, check=False)
    assert ended.returncode != 0
    assert sentence in ended.stderr


def test_a_shortlist_that_the_checkpoint_lacks_is_refused(model: Path) -> None:
    argv = [sys.executable, "-m", "services.launch", f"--model={model}", "--port=8099"]
    ended = subprocess.run(
        [*argv, "--spec=mtp", "--lm-head-draft"],
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    assert ended.returncode != 0
    assert "the drafter of chain has no shortlist" in ended.stderr
