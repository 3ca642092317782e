"""Tool results of Anthropic's clients as the model sees them, and the strict client's models."""

from datetime import datetime
from pathlib import Path
from typing import Any

import anthropic
import pytest

from shared.tokenizer import Tokenizer
from tests.gateway.agents import ROOM
from tests.gateway.conftest import Serve
from tests.gateway.test_messages import prompt
from tests.scripted_engine import say

DOCUMENT = {"type": "document", "title": "a.pdf", "source": {"type": "base64", "data": "x"}}


def history(**result: Any) -> list[dict[str, Any]]:
    call = {"type": "tool_use", "id": "t1", "name": "read", "input": {}}
    return [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": [call]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", **result}]},
    ]


@pytest.mark.parametrize(
    ("result", "shown"),
    [
        ({"content": "gone", "is_error": True}, "Error: gone"),
        ({"content": "Error: gone", "is_error": True}, "Error: gone"),
        (
            {"content": "<tool_use_error>gone</tool_use_error>", "is_error": True},
            "<tool_use_error>gone</tool_use_error>",
        ),
        ({"is_error": True}, "Error:"),
        ({"content": "fine", "is_error": False}, "fine"),
        ({"content": [DOCUMENT]}, "[a document (a.pdf), which this model cannot see]"),
        (
            {"content": [{"type": "tool_reference", "tool_name": "grep"}]},
            "[a tool (grep), which this model cannot see]",
        ),
        ({"content": [{"type": "document", "source": {"type": "text", "data": "abc"}}]}, "abc"),
        (
            {
                "content": [
                    {
                        "type": "document",
                        "source": {"type": "content", "content": [{"type": "text", "text": "d"}]},
                    },
                    {"type": "search_result", "content": [{"type": "text", "text": "e"}]},
                ]
            },
            "de",
        ),
    ],
)
async def test_a_result_is_shown_as_far_as_the_model_can_see_it(
    serve: Serve,
    tokenizer: Tokenizer,
    tool_models: dict[str, Path],
    result: dict[str, Any],
    shown: str,
) -> None:
    asked = {"max_tokens": 9, "messages": history(**result)}
    async with serve(say([]), model=tool_models["qwen"], engine=ROOM) as served:
        async with served.http.post(f"{served.url}/v1/messages", json=asked) as answer:
            assert answer.status == 200, await answer.text()
        text = prompt(tokenizer, served.engine.generates[0])
        await served.engine.wait_for(lambda: served.indexed)
        texts = served.indexed[0].tool_texts  # type: ignore[union-attr]
    assert f"<tool_response>\n{shown}\n</tool_response>" in text
    if isinstance(result.get("content"), str):
        assert texts == (result["content"],)  # what is copied from is the text alone


async def test_a_document_in_a_question_is_refused_by_its_place(serve: Serve) -> None:
    content = [{"type": "text", "text": "what is this?"}, DOCUMENT]
    asked = {"max_tokens": 9, "messages": [{"role": "user", "content": content}]}
    async with (
        serve(say([]), indexer=False) as served,
        served.http.post(f"{served.url}/v1/messages", json=asked) as answer,
    ):
        assert answer.status == 400
        message = (await answer.json())["error"]["message"]
    assert message == "messages[0].content[1]: 'document' blocks are not served"


async def test_deep_blocks_are_refused(serve: Serve) -> None:
    block: dict[str, Any] = {"type": "text", "text": "x"}
    for _ in range(300):
        block = {"type": "search_result", "content": [block]}
    asked = {"max_tokens": 9, "messages": history(content=[block])}
    async with (
        serve(say([]), indexer=False) as served,
        served.http.post(f"{served.url}/v1/messages", json=asked) as answer,
    ):
        assert answer.status == 400
        assert "nested deeper" in (await answer.json())["error"]["message"]


async def test_the_strict_client_reads_the_models(serve: Serve) -> None:
    async with (
        serve(say([]), indexer=False) as served,
        anthropic.AsyncAnthropic(
            base_url=served.url, api_key="unused", _strict_response_validation=True
        ) as client,
    ):
        (model,) = [model async for model in client.models.list()]
        assert model == await client.models.retrieve("tiny")
    assert (model.id, model.lifecycle, model.max_input_tokens) == ("tiny", "active", 512)
    assert isinstance(model.created_at, datetime)
