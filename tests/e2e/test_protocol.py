"""Chat completions over HTTP against the real processes, with the official SDK."""

import asyncio
import json
import socket
from typing import Any

import httpx2 as httpx
import openai
import pytest

from tests.e2e.conftest import Server, wait_for

pytestmark = pytest.mark.e2e
HELLO = [{"role": "user", "content": "Hello there"}]


def events(text: str) -> list[Any]:
    lines = [line.removeprefix("data: ") for line in text.split("\n\n") if line]
    return [line if line == "[DONE]" else json.loads(line) for line in lines]


def logged(server: Server, event: str) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in server.log.read_text().splitlines()]
    return [line for line in lines if line["event"] == event]


def test_the_sdk_gets_a_whole_answer(server: Server) -> None:
    client = openai.OpenAI(base_url=server.url, api_key="unused")
    model = client.models.list().data[0].id
    answer = client.chat.completions.create(model=model, messages=HELLO, max_tokens=12)  # type: ignore[arg-type]
    assert answer.choices[0].finish_reason == "length"
    assert answer.usage is not None
    assert answer.usage.completion_tokens == 12
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + 12


async def test_the_async_sdk_streams_the_same_text(server: Server) -> None:
    async with openai.AsyncOpenAI(base_url=server.url, api_key="unused") as client:
        model = (await client.models.list()).data[0].id
        options: dict[str, Any] = {"model": model, "messages": HELLO, "max_tokens": 20, "seed": 5}
        options["temperature"] = 1.0
        whole = await client.chat.completions.create(**options)
        streamed = await client.chat.completions.create(**options, stream=True)
        text = "".join([c.choices[0].delta.content or "" async for c in streamed if c.choices])
    assert text == whole.choices[0].message.content


def test_stream_events_come_in_the_order_that_strict_clients_want(server: Server) -> None:
    body = {
        "messages": HELLO,
        "max_tokens": 5,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    response = server.post(body)
    assert response.headers["content-type"] == "text/event-stream; charset=utf-8"
    *chunks, usage, done = events(response.text)
    assert done == "[DONE]"
    assert usage["choices"] == []
    assert usage["usage"]["completion_tokens"] == 5
    assert chunks[0]["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert chunks[-1]["choices"][0]["delta"] == {}
    assert chunks[-1]["choices"][0]["finish_reason"] == "length"
    assert all(c["choices"][0]["finish_reason"] is None for c in chunks[:-1])
    assert {(c["id"], c["object"], c["created"]) for c in chunks} == {
        (chunks[0]["id"], "chat.completion.chunk", chunks[0]["created"])
    }
    assert response.headers["x-request-id"] == chunks[0]["id"]


def test_a_stop_string_ends_the_text_before_it(server: Server) -> None:
    body = {"messages": HELLO, "max_tokens": 40, "temperature": 1.0, "seed": 3}
    text = server.post(body).json()["choices"][0]["message"]["content"]
    stop = text[10:13]
    answer = server.post({**body, "stop": stop}).json()
    assert answer["choices"][0]["message"]["content"] == text[: text.index(stop)]
    assert answer["choices"][0]["finish_reason"] == "stop"
    assert answer["usage"]["completion_tokens"] < 40


@pytest.mark.parametrize(
    ("change", "status", "param"),
    [
        ({"model": "gpt-9"}, 404, "model"),
        ({"messages": []}, 400, "messages"),
        ({"messages": None}, 400, "messages"),
        ({"messages": [{"role": "robot", "content": "x"}]}, 400, "messages[0].role"),
        ({"max_tokens": -1}, 400, "max_tokens"),
        ({"max_tokens": "many"}, 400, "max_tokens"),
        ({"max_tokens": True}, 400, "max_tokens"),
        ({"temperature": -0.1}, 400, "temperature"),
        ({"top_p": 0}, 400, "top_p"),
        ({"n": 5}, 400, "n"),
        ({"logprobs": 3}, 400, "logprobs"),
        ({"presence_penalty": 3}, 400, "presence_penalty"),
        ({"response_format": {"type": "yaml"}}, 400, "response_format.type"),
        ({"stop": ["x"] * 17}, 400, "stop"),
        ({"prediction": {"type": "other", "content": "x"}}, 400, "prediction.type"),
    ],
)
def test_a_bad_field_is_named(server: Server, change: Any, status: int, param: str) -> None:
    response = server.post({"messages": HELLO, "max_tokens": 3, **change})
    assert response.status_code == status
    assert response.json()["error"]["param"] == param


@pytest.mark.parametrize(
    "body", [b"", b"{", b'{"messages": NaN}', b'{"temperature": 1e999}', b"[" * 100_000, b"\xff"]
)
def test_a_body_that_is_not_json_is_refused(server: Server, body: bytes) -> None:
    headers = {"Content-Type": "application/json"}
    response = httpx.post(f"{server.url}/chat/completions", content=body, headers=headers)
    assert response.status_code == 400
    assert response.json()["error"]["code"] == "invalid_request_error"


def test_a_prompt_longer_than_the_context_is_refused_with_both_numbers(server: Server) -> None:
    context = httpx.get(f"{server.url}/models").json()["data"][0]["max_model_len"]
    response = server.post({"messages": [{"role": "user", "content": "word " * context}]})
    error = response.json()["error"]
    assert (response.status_code, error["code"]) == (400, "context_length_exceeded")
    assert f"maximum context length is {context} tokens" in error["message"]


@pytest.mark.parametrize("base", ["", "/v1", "/v1/v1", "//v1/"])
def test_base_urls_with_without_and_doubled_v1_work(server: Server, base: str) -> None:
    response = httpx.get(f"http://127.0.0.1:{server.port}{base}/models")
    assert response.json()["object"] == "list"


def test_unknown_paths_and_methods_are_json_errors(server: Server) -> None:
    assert httpx.get(f"{server.url}/api/tags").json()["error"]["code"] == "not_found"
    wrong = httpx.get(f"{server.url}/chat/completions")
    assert (wrong.status_code, wrong.headers["allow"]) == (405, "POST")


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Host": "evil.example"}, 403),
        ({"Origin": "http://evil.example"}, 403),
        ({"Content-Type": "text/plain"}, 415),
        ({"Content-Encoding": "gzip"}, 415),
    ],
)
def test_foreign_hosts_pages_and_encodings_are_refused(
    server: Server, headers: dict[str, str], status: int
) -> None:
    given = {"Content-Type": "application/json", **headers}
    body = json.dumps({"messages": HELLO, "max_tokens": 1}).encode()
    response = httpx.post(f"{server.url}/chat/completions", content=body, headers=given)
    assert response.status_code == status


def test_a_client_that_leaves_is_cancelled_and_logged(server: Server) -> None:
    body = json.dumps({"messages": HELLO, "max_tokens": 100_000, "stream": True})
    with socket.create_connection(("127.0.0.1", server.port)) as connection:
        connection.sendall(
            b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\n"
            b"Content-Type: application/json\r\n"
            + f"Content-Length: {len(body)}\r\n\r\n{body}".encode()
        )
        assert connection.recv(100)
    cancelled = wait_for(
        lambda: [
            line
            for line in logged(server, "request_done")
            if line["result"]["finish_reason"] == "cancelled"
        ]
    )
    assert cancelled[-1]["result"]["completion_tokens"] < 100_000
    health = f"http://127.0.0.1:{server.port}/health"
    assert wait_for(lambda: httpx.get(health).json()["running"] == 0)


async def test_requests_beyond_rows_and_queue_get_429(server: Server) -> None:
    body = {"messages": HELLO, "max_tokens": 400, "stream": False}
    async with httpx.AsyncClient(timeout=50) as client:
        url = f"{server.url}/chat/completions"
        answers = await asyncio.gather(*(client.post(url, json=body) for _ in range(8)))
    statuses = sorted(answer.status_code for answer in answers)
    assert statuses.count(200) >= 4
    assert 429 in statuses
    refused = next(answer for answer in answers if answer.status_code == 429)
    assert refused.headers["retry-after"]


def test_the_log_holds_no_text_and_one_end_for_each_start(server: Server) -> None:
    secret = "xylophone-quartz"
    server.post({"messages": [{"role": "user", "content": secret}], "max_tokens": 2})
    assert secret not in server.log.read_text()
    started = [line["request"]["request_id"] for line in logged(server, "request_start")]
    ended = [
        line["request"]["request_id"]
        for event in ("request_done", "request_error")
        for line in logged(server, event)
    ]
    assert len(set(started)) == len(started)
    assert all(ended.count(request_id) == 1 for request_id in started)
    assert len(logged(server, "server_start")) == 1


@pytest.mark.parametrize("change", [{"temperature": 1e-40}, {"temperature": 1, "top_p": 1e-50}])
def test_extreme_sampling_is_answered(server: Server, change: dict[str, float]) -> None:
    response = server.post({"messages": HELLO, "max_tokens": 3, **change})
    assert response.status_code == 200
    assert response.json()["usage"]["completion_tokens"] == 3


def test_a_body_far_beyond_the_context_is_refused_while_others_are_served(server: Server) -> None:
    huge = {"messages": [{"role": "user", "content": "lorem ipsum " * 2_000_000}]}
    refused = server.post(huge)
    assert (refused.status_code, refused.json()["error"]["code"]) == (
        400,
        "context_length_exceeded",
    )
    assert "at least" in refused.json()["error"]["message"]


def test_an_unknown_expectation_is_a_json_error(server: Server) -> None:
    with socket.create_connection(("127.0.0.1", server.port)) as connection:
        connection.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\nExpect: foo\r\n\r\n")
        answer = connection.recv(4096)
    assert answer.startswith(b"HTTP/1.1 417")
    assert b"application/json" in answer
