"""Chat completions with tools and thinking, for the official client."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from shared.tokenizer import Tokenizer
from tests.gateway.agents import (
    ARGUMENTS,
    ROOM,
    SAID,
    THOUGHT,
    TOOLS,
    async_openai,
    openai_client,
    qwen_call,
    turn,
)
from tests.gateway.conftest import MESSAGES, Serve, Served
from tests.gateway.test_messages import prompt
from tests.scripted_engine import Turn, say, say_text

ASK: Any = {"model": "tiny", "messages": MESSAGES, "tools": TOOLS}


def check_message(message: Any, form: str) -> None:
    assert message.content == SAID
    thought = getattr(message, "reasoning_content", None)
    assert thought == (THOUGHT if form == "qwen" else None)
    edit, read = message.tool_calls
    assert (edit.function.name, json.loads(edit.function.arguments)) == ("edit", ARGUMENTS)
    assert (read.function.name, json.loads(read.function.arguments)) == ("read", {"path": "b.py"})
    assert edit.id != read.id


@pytest.mark.parametrize("form", ["qwen", "hermes"])
async def test_calls_and_thinking_reach_the_clients(
    serve: Serve, tokenizer: Tokenizer, tool_models: dict[str, Path], form: str
) -> None:
    def ask(served: Served) -> Any:
        with openai_client(served) as client:
            return client.chat.completions.create(**ASK)

    script = say_text(tokenizer, turn(form))
    async with serve(script, model=tool_models[form], engine=ROOM) as served:
        whole = await asyncio.to_thread(ask, served)
        async with (
            async_openai(served) as client,
            client.chat.completions.stream(**ASK) as stream,
        ):
            streamed = await stream.get_final_completion()
    for answer in (whole, streamed):
        assert answer.choices[0].finish_reason == "tool_calls"
        check_message(answer.choices[0].message, form)
    usage = whole.usage.completion_tokens_details
    assert (usage.reasoning_tokens > 10) == (form == "qwen")


async def test_call_deltas_say_each_thing_once(
    serve: Serve, tokenizer: Tokenizer, tool_models: dict[str, Path]
) -> None:
    async with serve(
        say_text(tokenizer, turn("qwen")), model=tool_models["qwen"], engine=ROOM
    ) as served:
        *chunks, done = await served.events(tools=TOOLS)
    assert done == "[DONE]"
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks]
    kinds = [next(iter(delta), "") for delta in deltas]
    assert kinds.index("reasoning_content") < kinds.index("content", 1) < kinds.index("tool_calls")
    calls = [call for delta in deltas for call in delta.get("tool_calls", ())]
    openings = [call for call in calls if "id" in call]
    assert [(o["index"], o["type"], o["function"]) for o in openings] == [
        (0, "function", {"name": "edit", "arguments": ""}),
        (1, "function", {"name": "read", "arguments": ""}),
    ]
    for call in calls:
        if "id" not in call:
            assert set(call) == {"index", "function"}
            assert set(call["function"]) == {"arguments"}
    for index, expected in enumerate((ARGUMENTS, {"path": "b.py"})):
        text = "".join(c["function"]["arguments"] for c in calls if c["index"] == index)
        assert json.loads(text) == expected


async def test_a_call_that_the_limit_cuts_ends_with_length(
    serve: Serve, tokenizer: Tokenizer, tool_models: dict[str, Path]
) -> None:
    async def script(turn_: Turn) -> None:
        text = turn("qwen")
        await turn_.tokens(tokenizer.encode_text(text[: text.index("x = 2")]).tolist())
        await turn_.finish("length")

    async with serve(script, model=tool_models["qwen"], engine=ROOM) as served:
        _, body = await served.chat(tools=TOOLS)
    choice = body["choices"][0]
    assert choice["finish_reason"] == "length"
    (call,) = choice["message"]["tool_calls"]
    assert json.loads(call["function"]["arguments"])["new"] == "    "


async def test_stop_strings_mean_nothing_in_thinking_and_arguments(
    serve: Serve, tokenizer: Tokenizer, tool_models: dict[str, Path]
) -> None:
    script = say_text(tokenizer, turn("qwen"))
    async with serve(script, model=tool_models["qwen"], engine=ROOM) as served:
        _, untouched = await served.chat(tools=TOOLS, stop=["file.", "x = "])
        _, stopped = await served.chat(tools=TOOLS, stop=["ing 日"])
    assert untouched["choices"][0]["finish_reason"] == "tool_calls"
    message = stopped["choices"][0]["message"]
    assert stopped["choices"][0]["finish_reason"] == "stop"
    assert (message["content"], message["reasoning_content"]) == ("Edit", THOUGHT)
    assert "tool_calls" not in message


async def test_without_tools_markup_is_text(
    serve: Serve, tokenizer: Tokenizer, tool_models: dict[str, Path]
) -> None:
    text = qwen_call("edit", ARGUMENTS)
    script = say_text(tokenizer, text)
    async with serve(script, model=tool_models["hermes"], engine=ROOM) as served:
        for fields in ({}, {"tools": TOOLS, "tool_choice": "none"}, {"tools": []}):
            _, body = await served.chat(**fields)
            assert body["choices"][0]["message"]["content"] == text
            assert body["choices"][0]["finish_reason"] == "stop"


async def test_the_parser_may_be_chosen(
    serve: Serve, tokenizer: Tokenizer, tool_models: dict[str, Path]
) -> None:
    text = qwen_call("read", {"path": "a"})
    script = say_text(tokenizer, text)
    for parser, called in (("qwen", True), ("none", False), ("hermes", False)):
        async with serve(
            script, model=tool_models["hermes"], engine=ROOM, tool_parser=parser
        ) as served:
            _, body = await served.chat(tools=TOOLS)
        assert ("tool_calls" in body["choices"][0]["message"]) == called


async def test_a_replayed_turn_gives_the_prompt_that_the_model_wrote(
    serve: Serve, tokenizer: Tokenizer, tool_models: dict[str, Path]
) -> None:
    """So that the engine can reuse its work: what the client sends back renders as it was said."""
    arguments = {"path": "a.py", "old": "    x\n", "new": ""}
    said = f"{THOUGHT}\n</think>\n\nEditing.\n\n{qwen_call('edit', arguments)}"
    script = say_text(tokenizer, said)
    async with serve(script, model=tool_models["qwen"], engine=ROOM) as served:
        _, body = await served.chat(tools=TOOLS)
        message = body["choices"][0]["message"]
        call = message["tool_calls"][0]
        # as agents do: without the spaces
        compact = json.dumps(json.loads(call["function"]["arguments"]), separators=(",", ":"))
        call["function"]["arguments"] = compact
        result = {"role": "tool", "tool_call_id": call["id"], "content": "ok"}
        status, body = await served.chat(tools=TOOLS, messages=[*MESSAGES, message, result])
        assert status == 200, body
    first, second = (prompt(tokenizer, g) for g in served.engine.generates)
    assert second.startswith(f"{first}{said}[im_end]\n")


async def test_template_options_reach_the_template(
    serve: Serve, tokenizer: Tokenizer, tool_models: dict[str, Path]
) -> None:
    async with serve(say([]), model=tool_models["qwen"], engine=ROOM) as served:
        await served.chat()
        await served.chat(chat_template_kwargs={"enable_thinking": False})
        for options in ({"tokenize": True}, {"enable_thinking": "no"}):
            status, body = await served.chat(chat_template_kwargs=options)
            assert status == 400
            assert body["error"]["param"].startswith("chat_template_kwargs")
    on, off = (prompt(tokenizer, g) for g in served.engine.generates)
    assert on.endswith("assistant\n<think>\n")
    assert off.endswith("assistant\n<think>\n\n</think>\n\n")


SYSTEM = {"role": "system", "content": "S"}
DEVELOPER = {"role": "developer", "content": "D"}
USER = {"role": "user", "content": "hi"}
BROKEN: Any = {
    "role": "assistant",
    "content": None,
    "tool_calls": [{"id": "c", "type": "function", "function": {"name": "read", "arguments": "{"}}],
}


@pytest.mark.parametrize(
    ("messages", "expected"),
    [
        ([SYSTEM, DEVELOPER, USER], "system\nS\n\nD[im_end]\n[im_start]user\nhi["),
        ([USER, SYSTEM], "user\n<system-reminder>\nS\n</system-reminder>[im_end]"),
        ([SYSTEM], "system\nS[im_end]\n[im_start]user\n[im_end]"),
        ([{"role": "tool", "tool_call_id": "c", "content": "r"}], "[im_start]user\n[im_end]"),
        ([USER, BROKEN, USER], "<tool_call>\nread\n{\n</tool_call>[im_end]"),
        ([USER, {"role": "assistant", "content": "Sure: "}], "</think>\n\nSure: "),
    ],
)
async def test_a_strict_template_is_shown_what_it_can_take(
    serve: Serve,
    tokenizer: Tokenizer,
    tool_models: dict[str, Path],
    messages: list[Any],
    expected: str,
) -> None:
    async with serve(say([]), model=tool_models["qwen"], engine=ROOM, indexer=False) as served:
        status, body = await served.chat(messages=messages)
        assert status == 200, body
    assert expected in prompt(tokenizer, served.engine.generates[0])


async def test_a_long_argument_is_not_silence(
    serve: Serve, tokenizer: Tokenizer, tool_models: dict[str, Path]
) -> None:
    """A value that is parsed at its end streams nothing meanwhile: heartbeats stand in."""
    value = qwen_call("edit", {"all": [0] * 10})
    script = say_text(tokenizer, f"</think>{value}", tokens=4, delay_s=0.05)
    async with serve(script, model=tool_models["qwen"], engine=ROOM, heartbeat_s=0.2) as served:
        events = await served.events(tools=TOOLS)
    deltas = [e["choices"][0]["delta"] for e in events[1:-2]]
    assert deltas.count({}) >= 2
