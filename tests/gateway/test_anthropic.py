"""Anthropic's Messages, for the official client and on the wire."""

import asyncio
import json
from pathlib import Path
from typing import Any

import anthropic
import pytest

from shared.tokenizer import Tokenizer
from tests.gateway.agents import (
    ARGUMENTS,
    MESSAGES_TOOLS,
    ROOM,
    SAID,
    THOUGHT,
    anthropic_client,
    async_anthropic,
    named_events,
    qwen_call,
    turn,
)
from tests.gateway.conftest import Serve, Served
from tests.gateway.test_messages import prompt
from tests.scripted_engine import Turn, hang, say, say_text

HI: Any = [{"role": "user", "content": "hi"}]
ASK: Any = {"model": "claude-x", "max_tokens": 1000, "messages": HI}
AGENT: Any = {**ASK, "tools": MESSAGES_TOOLS, "thinking": {"type": "adaptive"}}


async def post(served: Served, path: str = "/v1/messages?beta=true", **fields: Any) -> Any:
    async with served.http.post(served.url + path, json=ASK | fields) as answer:
        return answer.status, await answer.json()


async def stream(served: Served, **fields: Any) -> list[dict[str, Any]]:
    body = ASK | {"stream": True} | fields
    async with served.http.post(f"{served.url}/v1/messages", json=body) as answer:
        assert answer.status == 200
        return named_events(await answer.text())


def check_blocks(blocks: list[Any], form: str) -> None:
    *thinking, text, edit, read = blocks
    assert [(b.type, b.thinking, b.signature) for b in thinking] == (
        [("thinking", THOUGHT, "")] if form == "qwen" else []
    )
    assert (text.type, text.text) == ("text", SAID)
    assert (edit.type, edit.name, edit.input) == ("tool_use", "edit", ARGUMENTS)
    assert (read.name, read.input) == ("read", {"path": "b.py"})
    assert edit.id.startswith("toolu_")
    assert edit.id != read.id


@pytest.mark.parametrize("form", ["qwen", "hermes"])
async def test_calls_and_thinking_reach_the_clients(
    serve: Serve, tokenizer: Tokenizer, tool_models: dict[str, Path], form: str
) -> None:
    def ask(served: Served) -> list[Any]:
        with anthropic_client(served) as client:
            whole = client.messages.create(**AGENT)
            with client.messages.stream(**AGENT) as helper:
                return [whole, helper.get_final_message()]

    script = say_text(tokenizer, turn(form))
    async with serve(script, model=tool_models[form], engine=ROOM) as served:
        answers = await asyncio.to_thread(ask, served)
        async with (
            async_anthropic(served) as client,
            client.messages.stream(**AGENT) as helper,
        ):
            answers.append(await helper.get_final_message())
            answers.append(await client.messages.create(**AGENT))
    for answer in answers:
        check_blocks(answer.content, form)
        assert (answer.stop_reason, answer.model) == ("tool_use", "claude-x")
        usage = answer.usage
        total = usage.input_tokens + usage.cache_read_input_tokens
        assert total == len(served.engine.generates[0].prompt_ids)
        assert usage.cache_read_input_tokens == 1
        assert usage.output_tokens == answers[0].usage.output_tokens > 100


async def test_blocks_never_overlap_and_count_from_zero(
    serve: Serve, tokenizer: Tokenizer, tool_models: dict[str, Path]
) -> None:
    script = say_text(tokenizer, turn("qwen"), tokens=1)
    async with serve(script, model=tool_models["qwen"], engine=ROOM) as served:
        events = await stream(served, tools=MESSAGES_TOOLS, thinking={"type": "adaptive"})
    start, *blocks, delta, stop = events
    message = start["message"]
    assert (start["type"], stop) == ("message_start", {"type": "message_stop"})
    assert (message["content"], message["stop_reason"], message["role"]) == ([], None, "assistant")
    assert message["usage"]["input_tokens"] == len(served.engine.generates[0].prompt_ids)
    assert delta["delta"] == {"stop_reason": "tool_use", "stop_sequence": None}
    open_block: tuple[int, str] | None = None
    opened = []
    for event in blocks:
        if event["type"] == "content_block_start":
            assert open_block is None
            open_block = (event["index"], event["content_block"]["type"])
            opened.append(open_block)
            continue
        assert open_block is not None
        assert event["index"] == open_block[0]
        if event["type"] == "content_block_stop":
            open_block = None
        else:
            wanted = {"thinking": "thinking", "text": "text", "tool_use": "input_json"}
            assert event["delta"]["type"] == f"{wanted[open_block[1]]}_delta"
    assert opened == [(0, "thinking"), (1, "text"), (2, "tool_use"), (3, "tool_use")]


async def test_an_empty_answer_is_whole(serve: Serve) -> None:
    async with serve(say([])) as served:
        events = await stream(served)
        _, body = await post(served)
    assert [event["type"] for event in events] == ["message_start", "message_delta", "message_stop"]
    assert body["content"] == []


@pytest.mark.parametrize(
    ("reason", "fields", "expected"),
    [
        ("stop", {}, ("end_turn", None)),
        ("length", {}, ("max_tokens", None)),
        ("context", {}, ("model_context_window_exceeded", None)),
        ("stop", {"stop_sequences": ["b"]}, ("stop_sequence", "b")),
    ],
)
async def test_stop_reasons(
    serve: Serve, tokenizer: Tokenizer, reason: Any, fields: Any, expected: Any
) -> None:
    async def script(turn_: Turn) -> None:
        await turn_.tokens(tokenizer.encode_text("abc").tolist())
        await turn_.finish(reason)

    async with serve(script) as served:
        _, body = await post(served, **fields)
    assert (body["stop_reason"], body["stop_sequence"]) == expected


async def test_silence_is_filled_with_pings(serve: Serve, tokenizer: Tokenizer) -> None:
    async with serve(say_text(tokenizer, "x", delay_s=0.5), heartbeat_s=0.1) as served:
        events = await stream(served)
    assert [event["type"] for event in events].count("ping") >= 3


async def test_a_fault_is_an_error_event(serve: Serve) -> None:
    async def script(turn_: Turn) -> None:
        await turn_.tokens([70])
        await turn_.fail("server_error", "a pass failed")

    async with serve(script) as served:
        events = await stream(served)
        async with async_anthropic(served) as client:
            with pytest.raises(anthropic.APIStatusError, match="a pass failed"):
                await client.messages.create(**ASK)
    assert events[-1]["error"] == {"type": "api_error", "message": "a pass failed"}


BILLING = "x-anthropic-billing-header: cc_version=2.1.197; cch=36ee5;"
SYSTEM = [
    {"type": "text", "text": BILLING},
    {"type": "text", "text": "One.", "cache_control": {"type": "ephemeral"}},
    {"type": "text", "text": f"Two: {BILLING}"},
]
RESULT = {"type": "tool_result", "tool_use_id": "t1", "content": [{"type": "text", "text": "R"}]}
USE = {"type": "tool_use", "id": "t1", "name": "read", "input": {"path": "a"}}


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"system": "S"}, "[im_start]system\nS[im_end]"),
        ({"system": SYSTEM}, f"system\nOne.\n\nTwo: {BILLING}[im_end]"),
        (
            {"messages": [*HI, {"role": "system", "content": "note"}, *HI]},
            "hi[im_end]\n[im_start]user\n<system-reminder>\nnote\n</system-reminder>[im_end]",
        ),
        (
            {
                "messages": [
                    *HI,
                    {
                        "role": "assistant",
                        "content": [{"type": "thinking", "thinking": "T", "signature": "x"}, USE],
                    },
                    {"role": "user", "content": [RESULT, {"type": "text", "text": "go on"}]},
                ],
            },
            "<tool_response>\nR\n</tool_response>[im_end]\n[im_start]user\ngo on[im_end]",
        ),
        (
            {
                "messages": [
                    *HI,
                    {"role": "assistant", "content": [{"type": "redacted_thinking", "data": "x"}]},
                    {
                        "role": "user",
                        "content": [
                            {"type": "tool_result", "tool_use_id": "t"},
                            {
                                "type": "tool_result",
                                "tool_use_id": "t",
                                "content": [{"type": "image", "source": {"type": "base64"}}],
                            },
                        ],
                    },
                ]
            },
            "<tool_response>\n[an image, which this model cannot see]\n</tool_response>",
        ),
    ],
)
async def test_bodies_become_the_prompt(
    serve: Serve, tokenizer: Tokenizer, tool_models: dict[str, Path], fields: Any, expected: str
) -> None:
    async with serve(say([]), model=tool_models["qwen"], engine=ROOM, indexer=False) as served:
        status, body = await post(served, **fields)
        assert status == 200, body
    assert expected in prompt(tokenizer, served.engine.generates[0])


async def test_what_claude_code_sends_is_accepted(
    serve: Serve, tool_models: dict[str, Path]
) -> None:
    fields = {
        "system": SYSTEM,
        "tools": [*MESSAGES_TOOLS, {"type": "web_search_20250305", "name": "web_search"}],
        "metadata": {"user_id": json.dumps({"device_id": "d", "session_id": "s"})},
        "thinking": {"type": "enabled", "budget_tokens": 2000},
        "context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
        "output_config": {"effort": "high"},
        "tool_choice": {"type": "auto", "disable_parallel_tool_use": True},
        "max_tokens": 32_000,
        "temperature": 1,
    }
    async with serve(say([]), model=tool_models["hermes"], engine=ROOM, indexer=False) as served:
        status, body = await post(served, **fields)
        assert status == 200, body
        async with served.http.head(served.url) as probe:
            assert probe.status == 200  # the page; Claude Code asks whether anybody is there
    generate = served.engine.generates[0]
    assert generate.max_output_tokens == 20_000 - len(generate.prompt_ids)


@pytest.mark.parametrize(
    ("thinking", "ending"),
    [
        (None, "</think>\n\n"),
        ({"type": "disabled"}, "</think>\n\n"),
        ({"type": "adaptive"}, "<think>\n"),
        ({"type": "enabled", "budget_tokens": 1024}, "<think>\n"),
    ],
)
async def test_thinking_is_on_when_asked_for(
    serve: Serve,
    tokenizer: Tokenizer,
    tool_models: dict[str, Path],
    thinking: Any,
    ending: str,
) -> None:
    async with serve(say([]), model=tool_models["qwen"], engine=ROOM, indexer=False) as served:
        await post(served, thinking=thinking)
    assert prompt(tokenizer, served.engine.generates[0]).endswith(ending)


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"messages": []}, "messages"),
    ({"messages": [{"role": "poet", "content": ""}]}, "messages[0].role"),
    ({"messages": [{"role": "user", "content": 5}]}, "messages[0].content"),
    ({"messages": [{"role": "user", "content": [{"text": "x"}]}]}, "messages[0].content[0].type"),
    ({"messages": [{"role": "user", "content": [{"type": "image"}]}]}, "messages[0].content[0]"),
    ({"messages": [{"role": "user", "content": [{"type": "text", "text": 1}]}]}, "content[0].text"),
    ({"system": [{"type": "image"}]}, "system[0]"),
    ({"output_config": {"effort": "huge"}}, "output_config.effort"),
    ({"tools": [{"name": "f", "input_schema": {}}]}, "tools:"),
    (
        {"messages": [{"role": "assistant", "content": [{"type": "tool_use", "input": "x"}]}]},
        "messages[0].content[0].input",
    ),
    ({"max_tokens": 0}, "max_tokens"),
    ({"temperature": -1}, "temperature"),
    ({"stop_sequences": [""]}, "stop_sequences"),
    ({"tool_choice": {"type": "any"}}, "tool_choice"),
    ({"tool_choice": {"type": "some"}}, "tool_choice.type"),
    ({"tool_choice": {"type": "tool"}}, "tool_choice.name"),
    ({"thinking": {"type": "maybe"}}, "thinking.type"),
    ({"mcp_servers": [{}]}, "mcp_servers"),
    ({"output_config": {"format": {"type": "json_schema"}}}, "output_config.format"),
    ({"tools": [{"input_schema": {}}]}, "tools[0].name"),
]


@pytest.mark.parametrize(("fields", "param"), REFUSED)
async def test_a_bad_field_is_refused_by_name(
    serve: Serve, fields: dict[str, Any], param: str
) -> None:
    async with serve(say([]), indexer=False) as served:
        status, body = await post(served, **fields)
        assert not served.engine.generates
    assert status == 400
    assert (body["type"], body["error"]["type"]) == ("error", "invalid_request_error")
    assert body["request_id"].startswith("msg_")
    assert param in body["error"]["message"]


async def test_errors_have_anthropics_shapes(serve: Serve) -> None:
    key = {"x-api-key": "k", "anthropic-version": "2023-06-01"}
    async with serve(say([]), indexer=False, api_key="k") as served:

        async def error(path: str, **headers: str) -> tuple[int, str, str]:
            url = served.url + path
            async with served.http.post(url, json=ASK | {"messages": LONG}, headers=headers) as got:
                body = await got.json()
                assert got.headers["request-id"] == body["request_id"]
                return got.status, body["error"]["type"], body["error"]["message"]

        long = await error("/v1/messages", **key)
        assert long[:2] == (400, "invalid_request_error")
        assert long[2].startswith("prompt is too long: 619 tokens > 512 maximum")
        assert (await error("/v1/messages"))[:2] == (401, "authentication_error")
        assert (await error("/v1/files", **key))[:2] == (404, "not_found_error")
        assert (await error("/v1/messages", Host="evil", **key))[:2] == (403, "permission_error")


LONG = [{"role": "user", "content": "x" * 600}]


async def test_a_full_queue_is_a_rate_limit(serve: Serve) -> None:
    async with serve(hang, engine={"max_concurrency": 1, "max_waiting": 0}) as served:
        held = asyncio.create_task(post(served))
        await served.engine.wait_for(lambda: served.engine.generates)
        status, body = await post(served)
        held.cancel()
    assert (status, body["error"]["type"]) == (429, "rate_limit_error")


async def test_tokens_are_counted_with_tools_and_template(
    serve: Serve, tool_models: dict[str, Path]
) -> None:
    async with serve(say([]), model=tool_models["qwen"], engine=ROOM) as served:
        async with async_anthropic(served) as client:
            counts = [
                await client.messages.count_tokens(model="m", messages=HI, **fields)
                for fields in ({}, {"system": "S"}, {"tools": MESSAGES_TOOLS}, {"tools": []})
            ]
        await post(served)
        generate = served.engine.generates[0]
    plain, system, tools, empty = (count.input_tokens for count in counts)
    assert plain == empty == len(generate.prompt_ids)
    assert plain < system < tools


async def test_the_client_lists_models(serve: Serve) -> None:
    async with serve(say([])) as served, async_anthropic(served) as client:
        models = [model async for model in client.models.list()]
        one = await client.models.retrieve("tiny")
    assert [(model.id, model.type, model.display_name) for model in models] == [
        ("tiny", "model", "tiny")
    ]
    assert one.id == "tiny"


async def test_a_call_with_other_words_for_its_end_is_complete(
    serve: Serve, tokenizer: Tokenizer, tool_models: dict[str, Path]
) -> None:
    """A model that stops right behind its value: only markup is missing."""
    text = qwen_call("read", {"path": "a"}).removesuffix("\n</function>\n</tool_call>")
    script = say_text(tokenizer, text)
    async with serve(script, model=tool_models["qwen"], engine=ROOM) as served:
        _, body = await post(served, tools=MESSAGES_TOOLS)
    assert body["stop_reason"] == "tool_use"
    assert body["content"][0]["input"] == {"path": "a"}
