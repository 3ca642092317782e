"""Everything that is refused, with its status and the field that is to blame."""

import io
import json
from typing import Any

import pytest

from tests.gateway.conftest import MESSAGES, Serve, Served
from tests.scripted_engine import say

USER = {"role": "user", "content": "hi"}


def deep(levels: int) -> Any:
    value: Any = {}
    for _ in range(levels):
        value = {"a": value}
    return value


REFUSED: list[tuple[dict[str, Any], int, str, str | None]] = [
    ({"model": "other"}, 404, "model_not_found", "model"),
    ({"model": 3}, 400, "invalid_request_error", "model"),
    ({"messages": []}, 400, "invalid_request_error", "messages"),
    ({"messages": "hi"}, 400, "invalid_request_error", "messages"),
    ({"messages": None}, 400, "invalid_request_error", "messages"),
    ({"messages": [{"content": "x"}]}, 400, "invalid_request_error", "messages[0].role"),
    ({"messages": [USER, {"role": "poet", "content": ""}]}, 400, "", "messages[1].role"),
    ({"messages": [{"role": "user", "content": 5}]}, 400, "", "messages[0].content"),
    ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, 400, "", "messages[0]"),
    ({"messages": [{"role": "user", "content": [{"type": "input_audio"}]}]}, 400, "", "messages"),
    ({"max_tokens": -1}, 400, "", "max_tokens"),
    ({"max_tokens": 0}, 400, "", "max_tokens"),
    ({"max_tokens": True}, 400, "", "max_tokens"),
    ({"max_tokens": "10"}, 400, "", "max_tokens"),
    ({"max_tokens": 1.5}, 400, "", "max_tokens"),
    ({"max_completion_tokens": -5}, 400, "", "max_completion_tokens"),
    ({"temperature": -0.1}, 400, "", "temperature"),
    ({"temperature": "hot"}, 400, "", "temperature"),
    ({"temperature": False}, 400, "", "temperature"),
    ({"temperature": float("nan")}, 400, "", "temperature"),
    ({"temperature": float("inf")}, 400, "", "temperature"),
    ({"top_p": 0}, 400, "", "top_p"),
    ({"top_p": 1.1}, 400, "", "top_p"),
    ({"top_p": float("-inf")}, 400, "", "top_p"),
    ({"top_k": -1}, 400, "", "top_k"),
    ({"min_p": 2}, 400, "", "min_p"),
    ({"seed": 1.5}, 400, "", "seed"),
    ({"seed": True}, 400, "", "seed"),
    ({"stop": 5}, 400, "", "stop"),
    ({"stop": ["a", 1]}, 400, "", "stop[1]"),
    ({"stop": ["x"] * 17}, 400, "", "stop"),
    ({"stop": ""}, 400, "", "stop"),
    ({"stream": "yes"}, 400, "", "stream"),
    ({"stream_options": {"include_usage": 1}}, 400, "", "stream_options.include_usage"),
    ({"prediction": {"type": "content"}}, 400, "", "prediction.content"),
    ({"prediction": {"type": "magic", "content": "x"}}, 400, "", "prediction.type"),
    ({"n": 17}, 400, "", "n"),
    ({"n": 5}, 400, "", "n"),  # more than the engine ever takes
    ({"n": 0}, 400, "", "n"),
    ({"top_logprobs": 3}, 400, "", "top_logprobs"),
    ({"logprobs": True, "top_logprobs": 21}, 400, "", "top_logprobs"),
    ({"logit_bias": {"5": 101}}, 400, "", "logit_bias[...]"),
    ({"logit_bias": {"five": 1}}, 400, "", "logit_bias"),
    ({"logit_bias": {"9999999": 1}}, 400, "", "logit_bias"),
    ({"presence_penalty": 2.5}, 400, "", "presence_penalty"),
    ({"frequency_penalty": -2.5}, 400, "", "frequency_penalty"),
    ({"repetition_penalty": 0}, 400, "", "repetition_penalty"),
    ({"min_tokens": -1}, 400, "", "min_tokens"),
    ({"ninfer": {"ngram_draft_tokens": 64}}, 400, "", "ninfer.ngram_draft_tokens"),
    ({"ninfer": {"wide": 1}}, 400, "", "ninfer"),
    ({"ninfer": {"thinking_budget": 9}}, 400, "", "ninfer.thinking_budget"),
    ({"modalities": ["text", "audio"]}, 400, "", "modalities"),
    ({"functions": [{"name": "f"}]}, 400, "", "functions"),
    ({"chat_template": "{{ 1 }}"}, 400, "", "chat_template"),
    ({"tools": [{"type": "function", "function": {"name": "f"}}]}, 400, "", "tools"),
    ({"tools": [3]}, 400, "", "tools[0]"),
    ({"tools": [deep(100)], "tool_choice": "none"}, 400, "", "tools"),
    ({"tool_choice": "required"}, 400, "", "tool_choice"),
    ({"tool_choice": {"type": "function", "function": {"name": "f"}}}, 400, "", "tool_choice"),
    ({"tool_choice": {"type": "allowed_tools"}}, 400, "", "tool_choice"),
    ({"tool_choice": "sometimes"}, 400, "", "tool_choice"),
]


@pytest.mark.parametrize(("fields", "status", "code", "param"), REFUSED)
async def test_a_bad_field_is_refused_by_name(
    serve: Serve, fields: dict[str, Any], status: int, code: str, param: str
) -> None:
    async with serve(say([]), indexer=False) as served:
        for stream in (False, True):
            if "stream" in fields and stream:
                continue
            got, body = await served.chat(**({"stream": stream} | fields))
            assert got == status
            assert body["error"]["code"] == (code or "invalid_request_error")
            assert body["error"]["type"] == "invalid_request_error"
            assert body["error"]["param"].startswith(param)
        assert not served.engine.generates


async def refuse(served: Served, raw: Any, **headers: str) -> tuple[int, dict[str, Any]]:
    given = {"Content-Type": "application/json"} | headers
    url = f"{served.url}/v1/chat/completions"
    async with served.http.post(url, data=raw, headers=given) as answer:
        return answer.status, (await answer.json())["error"]


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"{",
        b"[]",
        b'"text"',
        b"\xff\xfe",
        b'{"messages":[{"role":"user","content":"\\ud800"}]}',
        b'{"a":' * 100_000,
        b'{"messages":[{"role":"user","content":"x"}],"metadata":' + b"[" * 100_000,
    ],
    ids=["empty", "cut", "array", "string", "not-utf8", "surrogate", "deep", "deep-ignored"],
)
async def test_a_body_that_is_not_a_json_object_is_refused(serve: Serve, raw: bytes) -> None:
    async with serve(say([]), indexer=False) as served:
        status, error = await refuse(served, raw)
        assert status == 400
        assert error["type"] == "invalid_request_error"
        assert not served.engine.generates


async def test_a_number_beyond_floats_is_refused_by_name(serve: Serve) -> None:
    raw = b'{"messages":[{"role":"user","content":"x"}],"temperature":1e999}'
    async with serve(say([]), indexer=False) as served:
        status, error = await refuse(served, raw)
    assert (status, error["param"]) == (400, "temperature")


async def test_a_prompt_longer_than_the_context_is_refused_with_both_numbers(serve: Serve) -> None:
    messages = [{"role": "user", "content": "x" * 600}]
    async with serve(say([])) as served:
        status, body = await served.chat(messages=messages)
    assert status == 400
    assert body["error"]["code"] == "context_length_exceeded"
    assert "maximum context length is 512 tokens" in body["error"]["message"]
    assert "619" in body["error"]["message"]


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Content-Type": "text/plain"}, 415),
        ({"Content-Type": "application/x-www-form-urlencoded"}, 415),
        ({"Content-Encoding": "gzip"}, 415),
        ({"Content-Encoding": "zstd"}, 415),
    ],
)
async def test_other_bodies_than_plain_json_are_refused(
    serve: Serve, headers: dict[str, str], status: int
) -> None:
    async with serve(say([]), indexer=False) as served:
        got, error = await refuse(served, json.dumps({"messages": MESSAGES}).encode(), **headers)
    assert (got, error["code"]) == (status, "unsupported_media_type")


async def test_a_body_over_the_limit_is_refused(serve: Serve) -> None:
    async with serve(say([]), indexer=False, max_body_mib=1) as served:
        status, error = await refuse(served, io.BytesIO(b" " * (1 << 20) + b"{}"))
    assert (status, error["code"]) == (413, "request_too_large")


async def test_a_chunked_body_over_the_limit_is_refused(serve: Serve) -> None:
    async def chunks() -> Any:
        for _ in range(20):
            yield b" " * (1 << 16)

    async with serve(say([]), indexer=False, max_body_mib=1) as served:
        status, error = await refuse(served, chunks())
    assert (status, error["code"]) == (413, "request_too_large")


async def test_a_body_that_does_not_arrive_is_given_up(serve: Serve) -> None:
    async def stuck() -> Any:
        yield b'{"messages":'
        await served.engine.wait_for(lambda: served.log_lines("request_error"))

    async with serve(say([]), indexer=False, body_timeout_s=0.2) as served:
        status, error = await refuse(served, stuck())
    assert status == 408
    assert "in time" in error["message"]


async def test_unknown_and_harmless_fields_are_ignored(serve: Serve) -> None:
    harmless = {
        "store": False,
        "prompt_cache_key": "k",
        "parallel_tool_calls": True,
        "reasoning_effort": "high",
        "metadata": {"a": deep(5)},
        "service_tier": "auto",
        "user": "me",
        "verbosity": "low",
        "logit_bias": {},
        "presence_penalty": 0,
        "frequency_penalty": 0.0,
        "n": 1,
        "logprobs": False,
        "top_logprobs": None,
        "response_format": {"type": "text"},
        "tools": [],
        "tool_choice": "auto",
        "modalities": ["text"],
        "nobody_knows": [1, 2],
        "temperature": None,
        "stop": None,
        "max_tokens": None,
        "stream_options": None,
    }
    async with serve(say([])) as served:
        status, body = await served.chat(**harmless)
    assert status == 200, body
