"""A call that must be made is made, even by a model of random weights, drafted or not."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx2 as httpx
import pytest

from tests.e2e.conftest import Server
from tests.model_folders import TEMPLATES, function

pytestmark = pytest.mark.e2e

LIGHT = function(
    "light",
    state={"type": "string", "enum": ["on", "off"]},
    is_warm={"type": "boolean"},
)
LIGHT["function"]["parameters"] |= {
    "required": ["state", "is_warm"],
    "additionalProperties": False,  # of which random weights would make ever more
}
ASKED: dict[str, Any] = {
    "messages": [{"role": "user", "content": "light on, light off"}],
    "tools": [LIGHT],
    "tool_choice": {"type": "function", "function": {"name": "light"}},
    "max_tokens": 300,
    "chat_template_kwargs": {"enable_thinking": False},
}


@pytest.mark.parametrize("form", TEMPLATES)
def test_a_named_call_is_made(
    launch: Callable[..., Server], tiny_model: Path, tmp_path: Path, form: str
) -> None:
    model = Path(shutil.copytree(tiny_model, tmp_path / form))
    (model / "chat_template.jinja").write_text(TEMPLATES[form])
    server = launch(model, "--ngram-draft-tokens=15", "--ngram-min-match=4")
    url = f"http://127.0.0.1:{server.port}/tokenize"
    blanks = httpx.post(url, json={"content": " \n\r\t"}).json()["tokens"]
    # JSON may have blanks between its tokens, of which random weights would never have enough
    asked = ASKED | {"logit_bias": {str(token): -50 for token in blanks}}
    answers = [
        server.post(asked | {"ninfer": {"speculation": speculation}}).json()["choices"][0]
        for speculation in (True, False)
    ]
    for answer in answers:
        assert answer["finish_reason"] == "tool_calls"
        (call,) = answer["message"]["tool_calls"]
        arguments = json.loads(call["function"]["arguments"])
        assert call["function"]["name"] == "light"
        assert arguments["state"] in ("on", "off")
        assert isinstance(arguments["is_warm"], bool)
    said = [answer["message"]["tool_calls"][0]["function"] for answer in answers]
    assert said[0] == said[1]
