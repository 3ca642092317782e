"""Stored conversations as the strict official client reads them."""

from typing import Any

import openai
import pytest

from shared.tokenizer import Tokenizer
from tests.gateway.agents import ROOM
from tests.gateway.conftest import Serve, Served
from tests.gateway.test_messages import prompt
from tests.scripted_engine import say, say_text

EVERY_ITEM: list[dict[str, Any]] = [
    {"role": "user", "content": "hi"},
    {"role": "developer", "content": [{"type": "text", "text": "be short"}]},
    {"type": "reasoning", "content": [{"type": "reasoning_text", "text": "hm"}]},
    {"role": "assistant", "content": "yes"},
    {"type": "function_call", "call_id": "call_1", "name": "f", "arguments": "{}"},
    {"type": "function_call_output", "call_id": "call_1", "output": "done"},
    {"type": "custom_tool_call", "call_id": "call_2", "name": "g", "input": "x"},
    {
        "type": "custom_tool_call_output",
        "call_id": "call_2",
        "output": [{"type": "output_text", "text": "ok"}],
    },
    {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "go on"}]},
]


def strict_client(served: Served) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(
        base_url=f"{served.url}/v1",
        api_key="unused",
        max_retries=0,
        _strict_response_validation=True,
    )


async def get(served: Served, path: str) -> tuple[int, dict[str, Any]]:
    async with served.http.get(served.url + path) as answer:
        return answer.status, await answer.json()


async def test_every_kind_of_item_is_listed_whole(serve: Serve, tokenizer: Tokenizer) -> None:
    given: Any = EVERY_ITEM
    script = say_text(tokenizer, "One.")
    async with serve(script, engine=ROOM) as served, strict_client(served) as client:
        made = await client.responses.create(
            model="tiny", input=given, metadata={"a": "b"}, max_tool_calls=3
        )
        assert (await client.responses.retrieve(made.id)).output == made.output
        pages = client.responses.input_items.list(made.id, order="asc", limit=4)
        items: list[Any] = [item async for item in pages]
    kinds = [item.get("type", "message") for item in EVERY_ITEM]
    assert [item.type for item in items] == kinds
    assert all(item.status == "completed" for item in items if item.type != "reasoning")
    texts = [item.content[0].text for item in items if item.type == "message"]
    assert texts == ["hi", "be short", "yes", "go on"]
    assert items[7].output[0].text == "ok"
    assert (made.metadata, made.max_tool_calls) == ({"a": "b"}, 3)


@pytest.mark.parametrize("query", ["order=zz", "limit=0", "limit=x", "after=nothing"])
async def test_a_bad_query_is_refused_by_name(serve: Serve, query: str) -> None:
    async with serve(say([]), indexer=False) as served:
        url = f"{served.url}/v1/responses"
        async with served.http.post(url, json={"input": "hi"}) as answer:
            made = await answer.json()
        status, body = await get(served, f"/v1/responses/{made['id']}/input_items?{query}")
    assert (status, body["error"]["param"]) == (400, query.partition("=")[0])


@pytest.mark.parametrize("named", [{"type": "item_reference"}, {"type": None}, {}])
async def test_an_item_of_another_conversation_may_be_referred_to(
    serve: Serve, tokenizer: Tokenizer, named: dict[str, Any]
) -> None:
    async with serve(say_text(tokenizer, "Forty-two."), engine=ROOM) as served:
        url = f"{served.url}/v1/responses"
        async with served.http.post(url, json={"input": "first"}) as answer:
            said = (await answer.json())["output"][0]
        items = [{**named, "id": said["id"]}, {"role": "user", "content": "again"}]
        async with served.http.post(url, json={"input": items}) as answer:
            assert answer.status == 200, await answer.text()
        _, asked = served.engine.generates
    text = prompt(tokenizer, asked)
    assert "Forty-two." in text
    assert "first" not in text


async def test_harmless_includes_are_accepted(serve: Serve) -> None:
    body = {"input": "hi", "include": ["reasoning.encrypted_content", "file_search_call.results"]}
    async with (
        serve(say([]), indexer=False) as served,
        served.http.post(f"{served.url}/v1/responses", json=body) as answer,
    ):
        assert answer.status == 200


async def test_files_in_results_are_named_to_the_model(serve: Serve, tokenizer: Tokenizer) -> None:
    parts = [{"type": "input_file", "filename": "a.pdf", "file_data": "x"}, {"type": "input_image"}]
    items = [
        {"role": "user", "content": "look"},
        {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c", "output": parts},
    ]
    async with serve(say([]), indexer=False) as served:
        url = f"{served.url}/v1/responses"
        async with served.http.post(url, json={"input": items}) as answer:
            assert answer.status == 200
        text = prompt(tokenizer, served.engine.generates[0])
    assert "[a file (a.pdf), which this model cannot see][an image, which this" in text
