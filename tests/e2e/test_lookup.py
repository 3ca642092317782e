"""`--lookup-ngram` alone, through every process: drafts without copies, and the same text."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.conftest import Server, wait_for

pytestmark = pytest.mark.e2e

ASKED: dict[str, Any] = {
    "messages": [{"role": "user", "content": "one two three " * 8}],
    "temperature": 0,
    "max_tokens": 120,
    "ignore_eos": True,
    "logit_bias": {"40": 100},  # a random model that repeats itself, as agents' models do
}


def test_lookups_draft_and_change_no_text(launch: Callable[..., Server], tiny_model: Path) -> None:
    server = launch(tiny_model, "--lookup-ngram=2")
    drafted = server.post(ASKED).json()
    plain = server.post(ASKED | {"ninfer": {"speculation": False}}).json()
    assert drafted["choices"] == plain["choices"]
    assert drafted["usage"]["completion_tokens"] == 120
    sources = drafted["ninfer"]["speculative"]["sources"]
    assert set(sources) == {"lookup"}
    assert sources["lookup"]["accepted_tokens"] > 0
    assert plain["ninfer"]["speculative"]["num_drafts"] == 0
    (line, _) = wait_for(lambda: len(found := done(server)) == 2 and found)
    assert line["result"]["decode_passes"] < 119
    assert "lookups" in server.output.read_text()


def done(server: Server) -> list[dict[str, Any]]:
    lines = map(json.loads, server.log.read_text().splitlines())
    return [line for line in lines if line["event"] == "request_done"]
