"""A server whose matrices lie in fewer bits."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.e2e.conftest import Server

pytestmark = pytest.mark.e2e
HELLO = [{"role": "user", "content": "one two three one two three one two"}]


@pytest.mark.parametrize("form", ["int8", "int4"])
def test_a_server_says_its_weights_and_copies_change_nothing(
    tiny_model: Path, launch: Callable[..., Server], form: str
) -> None:
    server = launch(tiny_model, f"--weights={form}", "--ngram-draft-tokens=15")
    (start, *_) = [json.loads(line) for line in server.log.read_text().splitlines()]
    model = start["engine"]["model"]
    assert (model["weights"], model["dtype"], model["exact"]) == (form, "bfloat16", True)
    assert model["weight_bytes"] < 2 * model["parameters"]
    assert form in server.output.read_text()
    ask = {"messages": HELLO, "max_tokens": 60, "temperature": 0}
    copied = server.post(ask).json()
    plain = server.post(ask | {"ninfer": {"speculation": False}}).json()
    texts = [answer["choices"][0]["message"]["content"] for answer in (copied, plain)]
    assert texts[0] == texts[1]
