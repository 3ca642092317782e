"""What ends an output and how much is thought before it, in every protocol."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from services.gateway.output.output import Output, PlainParser
from shared.tokenizer import Tokenizer
from tests.gateway.conftest import MESSAGES, Serve, Served
from tests.model_folders import QWEN, with_template
from tests.scripted_engine import Turn, say

ASKED: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {"messages": MESSAGES},
    "/v1/responses": {"input": "hi"},
    "/v1/messages": {"messages": MESSAGES},
    "/v1/completions": {"prompt": "hi"},
}


async def post(served: Served, path: str, **fields: Any) -> tuple[int, dict[str, Any]]:
    async with served.http.post(served.url + path, json=ASKED[path] | fields) as answer:
        return answer.status, await answer.json()


def param_of(body: dict[str, Any]) -> str:
    error = body["error"]
    return str(error.get("param") or error["message"].partition(":")[0])


@pytest.mark.parametrize("path", ASKED)
async def test_every_protocol_hands_the_wishes_on(serve: Serve, path: str) -> None:
    fields = {
        "logit_bias": {"7": 2},
        "presence_penalty": 0.5,
        "repetition_penalty": 1.5,
        "min_tokens": 3,
        "stop_token_ids": [65],
    }
    async with serve(say([]), indexer=False) as served:
        status, body = await post(served, path, **fields)
        assert status == 200, body
        (asked,) = served.engine.generates
        assert asked.stop_ids == (*served.tokenizer.stop_ids, 65)
    assert asked.sampling.logit_bias == ((7, 2.0),)
    assert asked.sampling.presence_penalty == 0.5
    assert asked.sampling.repetition_penalty == 1.5
    assert asked.min_output_tokens == 3


async def test_an_ignored_end_is_never_drawn_and_ends_nothing(serve: Serve) -> None:
    async with serve(say([]), indexer=False) as served:
        own = served.tokenizer.stop_ids
        bias = {str(own[0]): 5, "7": 1}
        await post(
            served,
            "/v1/chat/completions",
            ignore_eos=True,
            stop_token_ids=[65],
            logit_bias=bias,
        )
        (asked,) = served.engine.generates
    assert asked.stop_ids == (65,)
    biases = dict(asked.sampling.logit_bias)
    assert biases.pop(7) == 1
    assert set(biases) == set(own)
    assert max(biases.values()) <= -1e9


@pytest.mark.parametrize("stream", [False, True])
async def test_a_stop_token_has_no_text(serve: Serve, tokenizer: Tokenizer, stream: bool) -> None:
    a, b = tokenizer.encode_text("ab").tolist()

    async def script(turn: Turn) -> None:
        await turn.tokens([a, b])
        await turn.finish("stop")

    async with serve(script, indexer=False) as served:
        if stream:
            events = await served.events(stop_token_ids=[b])
            deltas = [e["choices"][0]["delta"].get("content") for e in events[:-1]]
            assert "".join(filter(None, deltas)) == "a"
            return
        _, body = await served.chat(stop_token_ids=[b])
        assert body["choices"][0]["message"]["content"] == "a"
        assert body["choices"][0]["finish_reason"] == "stop"
        assert body["usage"]["completion_tokens"] == 2
        _, body = await served.chat(stop_token_ids=[b], stop=["x"])
        assert body["choices"][0]["message"]["content"] == "a"


@pytest.mark.parametrize("rounds", [1, 2, 6])
def test_stop_strings_wait_for_the_minimum(tokenizer: Tokenizer, rounds: int) -> None:
    ids = tokenizer.encode_text("xaxbxcxd").tolist()
    assert len(ids) == 8
    output = Output(tokenizer, PlainParser(), ("x",), min_tokens=4)
    events = []
    for at in range(0, len(ids), rounds):
        events += output.push(ids[at : at + rounds])
    assert "".join(e.text for e in events if hasattr(e, "text")) == "xaxb"
    assert (output.stop, output.tokens) == ("x", 5)


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"min_tokens": 10, "max_tokens": 9}, "min_tokens"),
        ({"min_tokens": 1 << 40}, "min_tokens"),
        ({"stop_token_ids": [-1]}, "stop_token_ids[0]"),
        ({"stop_token_ids": [1 << 20]}, "stop_token_ids"),
        ({"stop_token_ids": list(range(65))}, "stop_token_ids"),
        ({"ignore_eos": 1}, "ignore_eos"),
        ({"ignore_eos": True, "guided_choice": ["a"]}, "ignore_eos"),
        ({"min_tokens": 5, "response_format": {"type": "json_object"}}, "min_tokens"),
        ({"reasoning_effort": "huge"}, "reasoning_effort"),
        ({"continue_final_message": True}, "continue_final_message"),
        ({"add_generation_prompt": False}, "add_generation_prompt"),
    ],
)
async def test_bad_ends_are_refused_by_name(
    serve: Serve, fields: dict[str, Any], param: str
) -> None:
    async with serve(say([]), indexer=False) as served:
        status, body = await post(served, "/v1/chat/completions", **fields)
        assert (status, param_of(body)) == (400, param)
        assert not served.engine.generates


async def test_a_trailing_assistant_message_is_continued_and_nothing_else_may_be_asked(
    serve: Serve,
) -> None:
    path = "/v1/chat/completions"
    messages = [*MESSAGES, {"role": "assistant", "content": "The answer"}]
    agreeing = {"continue_final_message": True, "add_generation_prompt": False}
    async with serve(say([]), indexer=False) as served:
        for fields in ({}, agreeing):
            assert (await post(served, path, messages=messages, **fields))[0] == 200
        first, second = served.engine.generates
        assert served.tokenizer.decode(first.prompt_ids).endswith("The answer")
        assert first.prompt_ids.tolist() == second.prompt_ids.tolist()
        for name, value in agreeing.items():
            status, body = await post(served, path, messages=messages, **{name: not value})
            assert (status, param_of(body)) == (400, name)
        assert (await post(served, path, add_generation_prompt=True))[0] == 200


def effort_fields(path: str, effort: str) -> dict[str, Any]:
    return {
        "/v1/chat/completions": {"reasoning_effort": effort},
        "/v1/responses": {"reasoning": {"effort": effort}},
        "/v1/messages": {"output_config": {"effort": effort}, "thinking": {"type": "adaptive"}},
    }[path]


@pytest.fixture(scope="session")
def thinking_model(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Its tokenizer has tokens for the marks, and its template does not know efforts."""
    folder = with_template(tiny_model, tmp_path_factory.mktemp("thinking") / "m", QWEN)
    path = folder / "tokenizer.json"
    settings = json.loads(path.read_text())
    if path.is_symlink() or path.stat().st_nlink > 1:
        path.unlink()
        shutil.copy(tiny_model / "tokenizer.json", path)
    plain = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    settings["added_tokens"] += [
        {"id": 318 + i, "content": text, "special": False, **plain}
        for i, text in enumerate(("<think>", "</think>"))
    ]
    path.write_text(json.dumps(settings))
    return folder


@pytest.mark.parametrize(
    ("effort", "budget"), [("minimal", 1024), ("low", 1024), ("medium", 8192), ("high", None)]
)
@pytest.mark.parametrize("path", [p for p in ASKED if p != "/v1/completions"])
async def test_an_effort_is_a_budget_where_the_template_does_not_know_it(
    serve: Serve, thinking_model: Path, path: str, effort: str, budget: int | None
) -> None:
    async with serve(say([]), model=thinking_model, indexer=False) as served:
        status, body = await post(served, path, **effort_fields(path, effort))
        assert status == 200, body
        thinking = served.engine.generates[0].thinking
    assert (thinking and thinking.budget_tokens) == budget


@pytest.mark.parametrize("path", [p for p in ASKED if p != "/v1/completions"])
async def test_no_effort_turns_thinking_off(serve: Serve, thinking_model: Path, path: str) -> None:
    async with serve(say([]), model=thinking_model, indexer=False) as served:
        assert (await post(served, path, **effort_fields(path, "none")))[0] == 200
        prompt = served.engine.generates[0].prompt_ids
        text = Tokenizer.load(thinking_model).decode(prompt)
    assert text.endswith("<think>\n\n</think>\n\n")


@pytest.mark.parametrize("path", [p for p in ASKED if p != "/v1/completions"])
async def test_an_effort_reaches_a_template_that_knows_it(
    serve: Serve, thinking_model: Path, tmp_path: Path, path: str
) -> None:
    knows = QWEN + "{{- '[' ~ reasoning_effort ~ ']' }}"
    model = with_template(thinking_model, tmp_path / "knows", knows)
    async with serve(say([]), model=model, indexer=False) as served:
        assert (await post(served, path, **effort_fields(path, "low")))[0] == 200
        asked = served.engine.generates[0]
        assert Tokenizer.load(model).decode(asked.prompt_ids).endswith("[low]")
        assert asked.thinking is None
        status, body = await post(served, path, **effort_fields(path, "huge"))
        assert status == 400
        assert "effort" in param_of(body)


async def test_a_named_budget_goes_before_the_effort(serve: Serve, thinking_model: Path) -> None:
    thinking = {"type": "enabled", "budget_tokens": 2000}
    async with serve(say([]), model=thinking_model, indexer=False) as served:
        fields = effort_fields("/v1/messages", "low") | {"thinking": thinking}
        await post(served, "/v1/messages", **fields)
        limit = served.engine.generates[0].thinking
    assert limit is not None
    assert limit.budget_tokens == 2000
