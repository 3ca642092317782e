"""The official openai client, sync and async."""

import asyncio
from typing import Any

import openai
import pytest

from shared.tokenizer import Tokenizer
from tests.gateway.conftest import Serve, Served
from tests.scripted_engine import Turn, say

MESSAGES: Any = [{"role": "user", "content": "hi"}]
TEXT = "Hello, wörld 👋"


def words(tokenizer: Tokenizer) -> list[list[int]]:
    return [[token] for token in tokenizer.encode_text(TEXT).tolist()]


def sync_client(served: Served) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{served.url}/v1", api_key="unused", max_retries=0)


def async_client(served: Served) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(base_url=f"{served.url}/v1", api_key="unused", max_retries=0)


async def test_the_sync_client_gets_a_whole_answer(serve: Serve, tokenizer: Tokenizer) -> None:
    def ask(served: Served) -> Any:
        with sync_client(served) as client:
            return client.chat.completions.create(model="tiny", messages=MESSAGES)

    async with serve(say(words(tokenizer))) as served:
        answer = await asyncio.to_thread(ask, served)
    assert answer.choices[0].message.content == TEXT
    assert answer.choices[0].finish_reason == "stop"
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + len(words(tokenizer)) + 1


async def test_the_sync_client_streams(serve: Serve, tokenizer: Tokenizer) -> None:
    def ask(served: Served) -> Any:
        with sync_client(served) as client:
            stream = client.chat.completions.create(
                model="tiny",
                messages=MESSAGES,
                stream=True,
                stream_options={"include_usage": True},
            )
            return list(stream)

    async with serve(say(words(tokenizer))) as served:
        chunks = await asyncio.to_thread(ask, served)
    assert "".join(c.choices[0].delta.content or "" for c in chunks if c.choices) == TEXT
    assert chunks[-1].usage.completion_tokens == len(words(tokenizer)) + 1


async def test_the_async_client_gets_a_whole_answer(serve: Serve, tokenizer: Tokenizer) -> None:
    async with serve(say(words(tokenizer))) as served, async_client(served) as client:
        answer = await client.chat.completions.create(model="tiny", messages=MESSAGES)
    assert answer.choices[0].message.content == TEXT


async def test_the_strict_stream_helper_accepts_heartbeats(
    serve: Serve, tokenizer: Tokenizer
) -> None:
    script = say([tokenizer.encode_text(TEXT).tolist()], delay_s=0.3)
    async with (
        serve(script, heartbeat_s=0.1) as served,
        async_client(served) as client,
        client.chat.completions.stream(model="tiny", messages=MESSAGES) as stream,
    ):
        final = await stream.get_final_completion()
    assert final.choices[0].message.content == TEXT
    assert final.choices[0].finish_reason == "stop"


async def test_the_client_raises_on_an_error_in_the_stream(serve: Serve) -> None:
    async def script(turn: Turn) -> None:
        await turn.tokens([70])
        await turn.fail("server_error", "a pass failed")

    async with serve(script) as served, async_client(served) as client:
        stream = await client.chat.completions.create(model="tiny", messages=MESSAGES, stream=True)
        with pytest.raises(openai.APIError, match="a pass failed"):
            [chunk async for chunk in stream]


async def test_the_client_knows_the_errors(serve: Serve) -> None:
    async with serve(say([])) as served, async_client(served) as client:
        create = client.chat.completions.create
        with pytest.raises(openai.NotFoundError, match="tiny"):
            await create(model="gpt-4", messages=MESSAGES)
        with pytest.raises(openai.BadRequestError) as refused:
            await create(model="tiny", messages=[])
        assert refused.value.param == "messages"
        long: Any = [{"role": "user", "content": "x" * 1000}]
        with pytest.raises(openai.BadRequestError) as refused:
            await create(model="tiny", messages=long)
        assert refused.value.code == "context_length_exceeded"


async def test_the_client_lists_models(serve: Serve) -> None:
    async with serve(say([])) as served, async_client(served) as client:
        assert [model.id async for model in client.models.list()] == ["tiny"]
        assert (await client.models.retrieve("tiny")).owned_by == "ninfer"
