"""Legacy completions, models, and tokens to and from text."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from shared.tokenizer import Tokenizer
from tests.gateway.agents import ROOM, TOOLS, async_openai, openai_client
from tests.gateway.conftest import MESSAGES, Serve, Served
from tests.gateway.test_messages import prompt
from tests.scripted_engine import say, say_text

ASK: Any = {"model": "tiny", "prompt": "Once"}


async def post(served: Served, path: str, body: Any) -> tuple[int, Any]:
    async with served.http.post(served.url + path, json=body) as answer:
        return answer.status, await answer.json()


async def test_the_clients_complete_a_prompt(serve: Serve, tokenizer: Tokenizer) -> None:
    def ask(served: Served) -> Any:
        with openai_client(served) as client:
            return client.completions.create(**ASK, stop="time")

    async with serve(say_text(tokenizer, " upon a time")) as served:
        whole = await asyncio.to_thread(ask, served)
        async with async_openai(served) as client:
            options: Any = {"stream": True, "stream_options": {"include_usage": True}}
            chunks = [c async for c in await client.completions.create(**ASK, **options)]
    assert (whole.choices[0].text, whole.choices[0].finish_reason) == (" upon a ", "stop")
    assert whole.id.startswith("cmpl-")
    assert "".join(c.choices[0].text for c in chunks if c.choices) == " upon a time"
    assert chunks[-1].usage.completion_tokens == len(" upon a time") + 1
    assert prompt(tokenizer, served.engine.generates[0]) == "Once"


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("a<|im_start|>b", "a[im_start]b"),
        (["a"], "a"),
        ([70, 71], None),
        ([[70, 71]], None),
    ],
)
async def test_a_prompt_is_taken_as_it_is(
    serve: Serve, tokenizer: Tokenizer, given: Any, expected: str | None
) -> None:
    async with serve(say([]), indexer=False) as served:
        status, body = await post(served, "/v1/completions", {"prompt": given})
        assert status == 200, body
    generate = served.engine.generates[0]
    if expected is None:
        assert generate.prompt_ids.tolist() == [70, 71]
    else:
        assert prompt(tokenizer, generate) == expected


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"prompt": ""}, "prompt"),
        ({"prompt": []}, "prompt"),
        ({"prompt": ["a", "b"]}, "prompt"),
        ({"prompt": [1, "b"]}, "prompt"),
        ({"prompt": [[1], [2]]}, "prompt"),
        ({"prompt": [True]}, "prompt"),
        ({"prompt": [-1]}, "prompt"),
        ({"prompt": [320]}, "prompt"),
        ({"prompt": [2**40]}, "prompt"),
        ({"prompt": None}, "prompt"),
        ({"echo": True}, "echo"),
        ({"suffix": "x"}, "suffix"),
        ({"best_of": 2}, "best_of"),
        ({"n": 17}, "n"),
        ({"best_of": 2, "n": 2}, "best_of"),
        ({"logprobs": 1}, "logprobs"),
        ({"max_tokens": 0}, "max_tokens"),
    ],
)
async def test_a_bad_field_is_refused_by_name(serve: Serve, fields: Any, param: str) -> None:
    async with serve(say([]), indexer=False) as served:
        status, body = await post(served, "/v1/completions", ASK | fields)
        assert not served.engine.generates
    assert (status, body["error"]["param"]) == (400, param)


async def test_text_goes_to_tokens_and_back(serve: Serve, tool_models: dict[str, Path]) -> None:
    text = "né<|im_end|> 日本"
    async with serve(say([]), model=tool_models["qwen"], engine=ROOM, indexer=False) as served:
        _, parsed = await post(served, "/tokenize", {"content": text})
        _, plain = await post(served, "/v1/tokenize", {"prompt": text, "parse_special": False})
        _, back = await post(served, "/detokenize", {"tokens": parsed["tokens"]})
        _, pieces = await post(served, "/tokenize", {"content": "ab", "with_pieces": True})
        _, chat = await post(served, "/tokenize", {"messages": MESSAGES, "tools": TOOLS})
        await served.chat(tools=TOOLS)
    assert back["content"] == text
    assert len(plain["tokens"]) == plain["count"] > parsed["count"]
    assert [piece["piece"] for piece in pieces["tokens"]] == ["a", "b"]
    assert chat["tokens"] == served.engine.generates[0].prompt_ids.tolist()
    assert chat["max_model_len"] == 20_000


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        ("/tokenize", {}, "content"),
        ("/tokenize", {"content": "a", "prompt": "b"}, "content"),
        ("/tokenize", {"content": 5}, "content"),
        ("/detokenize", {"tokens": [-1]}, "tokens[0]"),
        ("/detokenize", {"tokens": [5000]}, "tokens"),
        ("/detokenize", {"tokens": "x"}, "tokens"),
    ],
)
async def test_bad_tokens_are_refused_by_name(
    serve: Serve, path: str, body: Any, param: str
) -> None:
    async with serve(say([]), indexer=False) as served:
        status, answer = await post(served, path, body)
    assert (status, answer["error"]["param"]) == (400, param)


async def test_the_openapi_document_names_every_body(serve: Serve) -> None:
    async with (
        serve(say([]), indexer=False) as served,
        served.http.get(f"{served.url}/openapi.json") as answer,
    ):
        document = await answer.json()
    assert document["openapi"].startswith("3.1")
    for path in ("chat/completions", "responses", "messages", "completions"):
        body = document["paths"][f"/v1/{path}"]["post"]["requestBody"]["content"]
        name = body["application/json"]["schema"]["$ref"].rpartition("/")[2]
        assert document["components"]["schemas"][name]["properties"]
