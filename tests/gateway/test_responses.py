"""OpenAI's Responses, for the official client, for Codex and on the wire."""

import asyncio
import json
from pathlib import Path
from typing import Any

import openai
import pytest

from shared.tokenizer import Tokenizer
from tests.gateway.agents import (
    ARGUMENTS,
    RESPONSES_TOOLS,
    ROOM,
    SAID,
    THOUGHT,
    async_openai,
    named_events,
    openai_client,
    qwen_call,
    turn,
)
from tests.gateway.conftest import Serve, Served
from tests.gateway.test_messages import prompt
from tests.scripted_engine import Turn, say, say_text

ASK: Any = {"model": "tiny", "input": "hi"}
AGENT: Any = {**ASK, "tools": RESPONSES_TOOLS}


async def post(served: Served, path: str = "/v1/responses", **fields: Any) -> Any:
    async with served.http.post(served.url + path, json=ASK | fields) as answer:
        return answer.status, await answer.json()


async def stream(served: Served, **fields: Any) -> list[dict[str, Any]]:
    body = ASK | {"stream": True} | fields
    async with served.http.post(f"{served.url}/v1/responses", json=body) as answer:
        assert answer.status == 200, await answer.text()
        return named_events(await answer.text())


def check_output(output: list[Any], form: str) -> None:
    *reasoning, message, edit, read = output
    assert [(item.type, item.content[0].text) for item in reasoning] == (
        [("reasoning", THOUGHT)] if form == "qwen" else []
    )
    assert (message.type, message.content[0].text, message.status) == ("message", SAID, "completed")
    assert (edit.type, edit.name, json.loads(edit.arguments)) == (
        "function_call",
        "edit",
        ARGUMENTS,
    )
    assert (read.name, json.loads(read.arguments)) == ("read", {"path": "b.py"})
    assert len({item.id for item in output}) == len(output)
    assert edit.call_id != read.call_id


@pytest.mark.parametrize("form", ["qwen", "hermes"])
async def test_calls_and_thinking_reach_the_clients(
    serve: Serve, tokenizer: Tokenizer, tool_models: dict[str, Path], form: str
) -> None:
    def ask(served: Served) -> list[Any]:
        with openai_client(served) as client:
            whole = client.responses.create(**AGENT)
            with client.responses.stream(**AGENT) as helper:
                for _ in helper:
                    pass
                return [whole, helper.get_final_response()]

    script = say_text(tokenizer, turn(form))
    async with serve(script, model=tool_models[form], engine=ROOM) as served:
        answers = await asyncio.to_thread(ask, served)
        async with (
            async_openai(served) as client,
            client.responses.stream(**AGENT) as helper,
        ):
            answers.append(await helper.get_final_response())
    for answer in answers:
        assert answer.status == "completed"
        check_output(answer.output, form)
        assert answer.usage.input_tokens == len(served.engine.generates[0].prompt_ids)
        assert answer.usage.input_tokens_details.cached_tokens == 1
        assert answer.usage.total_tokens == answer.usage.input_tokens + answer.usage.output_tokens


def fold(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The items that the events build, checked as the strictest client would."""
    items: dict[int, dict[str, Any]] = {}
    done: list[dict[str, Any]] = []
    for event in events:
        kind = event["type"].removeprefix("response.")
        index = event.get("output_index")
        if kind == "output_item.added":
            assert index == len(done) == len(items)
            items[index] = {**event["item"], "grown": ""}
        elif kind == "output_item.done":
            assert event["item"]["id"] == items[index]["id"]
            done.append(event["item"])
        elif index is not None:
            item = items[index]
            assert event["item_id"] == item["id"]
            assert index == len(done)
            if kind.endswith(".delta"):
                item["grown"] += event["delta"]
            elif kind.endswith(".done") and kind != "content_part.done":
                whole = event.get("text", event.get("arguments", event.get("input")))
                assert whole == item["grown"]
    return done


async def test_events_build_the_items_in_order(
    serve: Serve, tokenizer: Tokenizer, tool_models: dict[str, Path]
) -> None:
    script = say_text(tokenizer, turn("qwen"), tokens=1)
    async with serve(script, model=tool_models["qwen"], engine=ROOM) as served:
        events = await stream(served, tools=RESPONSES_TOOLS)
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    assert [event["type"] for event in events[:2]] == ["response.created", "response.in_progress"]
    last = events[-1]
    assert last["type"] == "response.completed"
    assert last["response"]["output"] == fold(events)
    assert [item["type"] for item in last["response"]["output"]] == [
        "reasoning",
        "message",
        "function_call",
        "function_call",
    ]


@pytest.mark.parametrize("reason", ["length", "context"])
async def test_a_cut_response_is_incomplete(
    serve: Serve, tokenizer: Tokenizer, tool_models: dict[str, Path], reason: Any
) -> None:
    async def script(turn_: Turn) -> None:
        text = turn("qwen")
        await turn_.tokens(tokenizer.encode_text(text[: text.index("x = 2")]).tolist())
        await turn_.finish(reason)

    async with serve(script, model=tool_models["qwen"], engine=ROOM) as served:
        events = await stream(served, tools=RESPONSES_TOOLS)
    assert events[-1]["type"] == "response.incomplete"
    response = events[-1]["response"]
    assert response["incomplete_details"] == {"reason": "max_output_tokens"}
    assert response["output"][-1]["status"] == "incomplete"
    assert isinstance(json.loads(response["output"][-1]["arguments"]), dict)


async def test_silence_is_filled_with_events_that_reset_codexs_timer(
    serve: Serve, tokenizer: Tokenizer
) -> None:
    async with serve(say_text(tokenizer, "x", delay_s=0.5), heartbeat_s=0.1) as served:
        events = await stream(served)
    assert [event["type"] for event in events].count("response.in_progress") >= 4


async def test_a_fault_is_a_failed_response(serve: Serve) -> None:
    async def script(turn_: Turn) -> None:
        await turn_.tokens([70])
        await turn_.fail("server_error", "a pass failed")

    async with serve(script) as served:
        events = await stream(served)
    assert events[-1]["type"] == "response.failed"
    assert events[-1]["response"]["error"] == {"code": "server_error", "message": "a pass failed"}


CODEX_TOOLS = [
    *RESPONSES_TOOLS,
    {"type": "web_search"},
    {"type": "image_generation"},
    {"type": "local_shell"},
    {
        "type": "namespace",
        "name": "multi_agent_v1",
        "tools": [
            {"type": "function", "name": "spawn", "parameters": {"anyOf": []}},
            {"type": "function", "name": "read", "parameters": {"type": "object"}},
        ],
    },
    {
        "type": "custom",
        "name": "apply_patch",
        "description": "Edits files.",
        "format": {"type": "grammar", "syntax": "lark", "definition": "start: begin"},
    },
]
PATCH = '*** Begin Patch\n*** Update File: a\n@@\n-"x"\n+ y\n*** End Patch'


async def test_what_codex_sends_is_accepted(
    serve: Serve, tokenizer: Tokenizer, tool_models: dict[str, Path]
) -> None:
    calls = [
        qwen_call("multi_agent_v1__read", {}),
        qwen_call("spawn", {}),
        qwen_call("apply_patch", {"input": PATCH}),
    ]
    fields = {
        "input": [
            {"type": "message", "role": "developer", "content": [input_text("base")]},
            {"type": "message", "role": "developer", "content": [input_text("skills")]},
            {"type": "message", "role": "user", "content": [input_text("<environment_context>")]},
            {"type": "message", "role": "user", "content": [input_text("task")]},
        ],
        "tools": CODEX_TOOLS,
        "tool_choice": "auto",
        "parallel_tool_calls": True,
        "reasoning": {"summary": "auto"},
        "store": False,
        "include": ["reasoning.encrypted_content"],
        "prompt_cache_key": "thread",
        "client_metadata": {"session_id": "s", "thread_id": "t"},
    }
    script = say_text(tokenizer, "</think>" + "\n".join(calls))
    async with serve(script, model=tool_models["qwen"], engine=ROOM) as served:
        events = await stream(served, **fields)
        shown = prompt(tokenizer, served.engine.generates[0])
    read, spawn, patch = fold(events)
    assert (read["name"], read["namespace"]) == ("read", "multi_agent_v1")
    assert (spawn["name"], spawn["namespace"]) == ("spawn", "multi_agent_v1")
    assert (patch["type"], patch["name"], patch["input"]) == (
        "custom_tool_call",
        "apply_patch",
        PATCH,
    )
    assert "base\n\nskills[im_end]" in shown
    assert "start: begin" in shown
    assert "web_search" not in shown


def input_text(text: str) -> dict[str, str]:
    return {"type": "input_text", "text": text}


async def test_a_replayed_turn_gives_the_prompt_that_the_model_wrote(
    serve: Serve, tokenizer: Tokenizer, tool_models: dict[str, Path]
) -> None:
    """Codex sends each item back as it was done, and each call's output."""
    said = f"{THOUGHT}\n</think>\n\nEditing.\n\n{qwen_call('edit', {'path': 'a', 'new': ' b '})}"
    ask: list[Any] = [{"type": "message", "role": "user", "content": "hi"}]
    async with serve(say_text(tokenizer, said), model=tool_models["qwen"], engine=ROOM) as served:
        items = fold(await stream(served, input=ask, tools=RESPONSES_TOOLS, store=False))
        output = {"type": "function_call_output", "call_id": items[-1]["call_id"], "output": "ok"}
        again = [*ask, *items, output]
        await stream(served, input=again, tools=RESPONSES_TOOLS, store=False)
    first, second = (prompt(tokenizer, g) for g in served.engine.generates)
    assert second.startswith(f"{first}{said}[im_end]\n[im_start]user\n<tool_response>\nok\n")


async def test_a_stored_response_is_continued(
    serve: Serve, tokenizer: Tokenizer, tool_models: dict[str, Path]
) -> None:
    async with (
        serve(
            say_text(tokenizer, "</think>One."), model=tool_models["qwen"], engine=ROOM
        ) as served,
        async_openai(served) as client,
    ):
        first = await client.responses.create(model="tiny", input="a", instructions="Be short.")
        second = await client.responses.create(
            model="tiny", input="b", previous_response_id=first.id
        )
        kept = await client.responses.retrieve(second.id)
        items = [item async for item in client.responses.input_items.list(second.id, limit=2)]
        assert kept.output == second.output
        await client.responses.delete(first.id)
        with pytest.raises(openai.NotFoundError):
            await client.responses.retrieve(first.id)
        with pytest.raises(openai.BadRequestError, match="not found"):
            await client.responses.create(model="tiny", input="c", previous_response_id=first.id)
        with pytest.raises(openai.BadRequestError, match="background"):
            await client.responses.cancel(second.id)
    before, after = (prompt(tokenizer, g) for g in served.engine.generates)
    assert before.startswith("[im_start]system\nBe short.")
    assert "Be short." not in after  # instructions are of one response
    assert "user\na[im_end]" in after
    assert "One." in after
    users = [item for item in items if item.type == "message" and item.role == "user"]
    assert [item.content[0].text for item in users] == ["b", "a"]


async def test_the_store_is_bounded_and_may_be_off(serve: Serve, tokenizer: Tokenizer) -> None:
    async with serve(say([]), engine=ROOM, stored_responses_mib=1) as served:
        ids = []
        for _ in range(80):
            _, body = await post(served, input="x" * 15_000)
            ids.append(body["id"])
        statuses = []
        for response_id in (ids[0], ids[-1]):
            async with served.http.get(f"{served.url}/v1/responses/{response_id}") as answer:
                statuses.append(answer.status)
        assert statuses == [404, 200]
        _, body = await post(served, store=False)
        async with served.http.get(f"{served.url}/v1/responses/{body['id']}") as answer:
            assert answer.status == 404
    async with serve(say([]), stored_responses_mib=0) as served:
        status, body = await post(served, store=True)
        assert (status, body["error"]["param"]) == (400, "store")
        assert (await post(served))[1]["store"] is False


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"input": []}, "input"),
    ({"input": 5}, "input"),
    ({"input": [{"role": "poet", "content": "x"}]}, "input[0].role"),
    ({"input": [{"type": "dance"}]}, "input[0].type"),
    ({"input": [{"type": 5}]}, "input[0].type"),
    ({"input": [{"role": "user", "content": [{"type": "input_image"}]}]}, "input[0].content[0]"),
    ({"input": [{"role": "user", "content": [{"text": "x"}]}]}, "input[0].content[0].type"),
    ({"input": [{"type": "item_reference", "id": "x"}]}, "input[0].id"),
    ({"previous_response_id": "resp_x"}, "previous_response_id"),
    ({"background": True}, "background"),
    ({"conversation": "c"}, "conversation"),
    ({"truncation": "auto"}, "truncation"),
    ({"text": {"format": {"type": "json_schema"}}}, "text.format.schema"),
    ({"tool_choice": "required"}, "tool_choice"),
    ({"tools": [{"type": "function"}]}, "tools[0].name"),
    ({"max_output_tokens": 0}, "max_output_tokens"),
    ({"top_logprobs": 3}, "top_logprobs"),
    ({"model": "other"}, "model"),
    ({"include": ["everything"]}, "include[0]"),
    ({"include": ["message.output_text.logprobs"]}, "include[0]"),
    ({"max_tool_calls": 0}, "max_tool_calls"),
    ({"reasoning": {"effort": "huge"}}, "reasoning.effort"),
    ({"metadata": "mine"}, "metadata"),
    ({"metadata": {"a": 5}}, "metadata[...]"),
]


@pytest.mark.parametrize(("fields", "param"), REFUSED)
async def test_a_bad_field_is_refused_by_name(
    serve: Serve, fields: dict[str, Any], param: str
) -> None:
    async with serve(say([]), indexer=False) as served:
        status, body = await post(served, **fields)
        assert not served.engine.generates
    assert status == (404 if param == "model" else 400)
    assert body["error"]["param"] == param


async def test_a_format_becomes_the_engines_grammar(serve: Serve) -> None:
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}}
    form = {"type": "json_schema", "name": "n", "schema": schema}
    async with serve(say([]), indexer=False) as served:
        await post(served, text={"format": form})
        await post(served, text={"format": {"type": "text"}})
        url = f"{served.url}/v1/messages"
        asked = {"messages": [{"role": "user", "content": "x"}], "output_config": {"format": form}}
        async with served.http.post(url, json=asked) as answer:
            assert answer.status == 200
    first, second, third = (generate.grammar for generate in served.engine.generates)
    assert first == third is not None
    assert second is None


async def test_compacting_is_refused_and_tokens_are_counted(serve: Serve) -> None:
    async with serve(say([]), indexer=False) as served:
        status, body = await post(served, "/v1/responses/compact")
        assert (status, body["error"]["code"]) == (400, "invalid_request_error")
        status, body = await post(served, "/v1/responses/input_tokens")
        assert (status, body["object"]) == (200, "response.input_tokens")
        await post(served)
    assert body["input_tokens"] == len(served.engine.generates[0].prompt_ids)
