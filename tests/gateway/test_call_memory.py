"""Calls that clients write anew are shown to the model as it wrote them."""

import asyncio
from pathlib import Path
from typing import Any

import anthropic
import pytest

from services.gateway.call_memory import CallListener, CallMemory
from services.gateway.conversation import Call, Conversation, Turn
from services.gateway.output.events import CallArguments, CallEnd, CallStart
from shared.tokenizer import Tokenizer
from tests.gateway.agents import ROOM, anthropic_client, qwen_call
from tests.gateway.conftest import Serve
from tests.model_folders import function
from tests.scripted_engine import say_text

FLAG = {"type": "boolean", "default": False}
EDIT = function("edit", path={"type": "string"}, count={"type": "integer"}, all=FLAG)
SAID = '{"path": "a.py", "count": 1}'


def shown(memory: CallMemory, sent: str | dict[str, Any], **call: str) -> str | dict[str, Any]:
    """The arguments of a replayed call as a template gets them."""
    replayed = Call(call.get("call_id", "call_k1"), call.get("name", "edit"), sent)
    conversation = Conversation((Turn("assistant", "", calls=(replayed,)),), (EDIT,))
    return memory.restore(conversation).turns[0].calls[0].arguments


@pytest.fixture
def memory() -> CallMemory:
    memory = CallMemory()
    pieces = [CallArguments(SAID[:5]), CallArguments(SAID[5:])]
    CallListener(memory).hear([CallStart("k1", "edit"), *pieces, CallEnd(complete=True)])
    return memory


@pytest.mark.parametrize(
    "sent",
    [
        SAID,
        '{"count":1,"path":"a.py"}',
        {"all": False, "path": "a.py", "count": 1},
        '{"all":false,"path":"a.py","count":1}',
    ],
)
def test_a_call_that_means_the_same_is_shown_as_it_was_written(
    memory: CallMemory, sent: str | dict[str, Any]
) -> None:
    assert shown(memory, sent) == SAID
    assert shown(memory, sent, call_id="toolu_k1") == SAID


@pytest.mark.parametrize(
    "sent",
    [
        {"path": "a.py", "count": 2},
        {"path": "a.py", "count": True},
        {"path": "a.py"},
        {"path": "a.py", "count": 1, "all": True},
        {"path": "a.py", "count": 1, "other": False},
        '["path", "a.py"]',
        '{"path": "a.py", "count"',
        pytest.param("[" * 100_000, id="deep"),
        "",
    ],
)
def test_a_call_that_means_something_else_is_left_as_it_came(
    memory: CallMemory, sent: str | dict[str, Any]
) -> None:
    assert shown(memory, sent) == sent


def test_only_the_same_call_of_the_same_tool_is_known(memory: CallMemory) -> None:
    sent = '{"count":1,"path":"a.py"}'
    assert shown(memory, sent, call_id="call_k2") == sent
    assert shown(memory, sent, name="read") == sent


def test_a_call_that_was_cut_is_not_kept() -> None:
    memory = CallMemory()
    events = [CallStart("k1", "edit"), CallArguments(SAID), CallEnd(complete=False)]
    CallListener(memory).hear(events)
    assert shown(memory, '{"count":1,"path":"a.py"}') == '{"count":1,"path":"a.py"}'


def test_the_oldest_calls_make_room() -> None:
    memory = CallMemory(most_characters=2 * len(SAID))
    for number in range(1, 4):
        memory.keep(f"k{number}", "edit", SAID)
    sent = '{"count":1,"path":"a.py"}'
    assert [shown(memory, sent, call_id=f"call_k{n}") for n in (1, 2, 3)] == [sent, SAID, SAID]


async def test_a_replayed_call_keeps_the_prefix(
    serve: Serve, tool_models: dict[str, Path], tokenizer: Tokenizer
) -> None:
    tool: Any = {"name": "edit", "input_schema": EDIT["function"]["parameters"]}
    asked: Any = {"role": "user", "content": "go"}
    common: Any = {"model": "any", "max_tokens": 500, "tools": [tool]}
    call = qwen_call("edit", {"path": "a.py", "count": 1})
    script = say_text(tokenizer, call)
    async with serve(script, engine=ROOM, model=tool_models["qwen"]) as served:

        def turn(client: anthropic.Anthropic) -> None:
            first = client.messages.create(messages=[asked], **common)
            (used,) = first.content
            assert used.type == "tool_use"
            replayed = {**used.model_dump(), "input": {"all": False, **used.input}}  # type: ignore[dict-item]
            result = {"type": "tool_result", "tool_use_id": used.id, "content": "done"}
            history: Any = [
                asked,
                {"role": "assistant", "content": [replayed]},
                {"role": "user", "content": [result]},
            ]
            client.messages.create(messages=history, **common)

        with anthropic_client(served) as client:
            await asyncio.to_thread(turn, client)
        first, second = (
            tokenizer.decode_all(one.prompt_ids.tolist()) for one in served.engine.generates
        )
    assert second.startswith(first + call)
