"""Several choices for one request: n generations behind one answer."""

import asyncio
import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import aiohttp
import openai
import pytest

from shared.messages import BuildIndex, FailureCode
from shared.tokenizer import Tokenizer
from tests.gateway.conftest import MESSAGES, Serve, Served
from tests.gateway.test_metrics import scrape, scrape_until
from tests.scripted_engine import Script, Turn, hang, say_text

FOUR = {"max_concurrency": 2, "max_waiting": 2}
WORDS = ("zero", "one", "two", "three")


def index_of(turn: Turn) -> int:
    """Which choice this is, by its id."""
    head, dot, index = turn.generate.request_id.partition(".")
    assert head.startswith(("chatcmpl-", "cmpl-"))
    return int(index) if dot else 0


def each(*scripts: Script) -> Script:
    """One script a choice."""

    async def script(turn: Turn) -> None:
        await scripts[index_of(turn)](turn)

    return script


def saying(tokenizer: Tokenizer, *texts: str) -> Script:
    return each(*(say_text(tokenizer, text, tokens=2) for text in texts))


def after(events: list[asyncio.Event], index: int, script: Script) -> Script:
    """Waits for its event first, in the middle of its output."""

    async def waiting(turn: Turn) -> None:
        await turn.tokens([])
        await events[index].wait()
        await script(turn)

    return waiting


async def until(served: Served, condition: Callable[[], Any]) -> None:
    await served.engine.wait_for(condition)


def client_of(served: Served) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(base_url=f"{served.url}/v1", api_key="unused", max_retries=0)


async def has_open(served: Served, places: int) -> None:
    """Waits for it."""
    await scrape_until(served, lambda values: values["ninfer:open_requests"] == places)


async def test_each_choice_is_an_answer_of_its_own(serve: Serve, tokenizer: Tokenizer) -> None:
    async def cut(turn: Turn) -> None:
        await turn.tokens(tokenizer.encode_text("cut off").tolist())
        await turn.finish("length")

    script = each(say_text(tokenizer, "zero"), cut, say_text(tokenizer, "two"))
    async with serve(script, engine=FOUR) as served:
        status, body = await served.chat(n=3)
    assert status == 200
    assert [choice["index"] for choice in body["choices"]] == [0, 1, 2]
    texts = [choice["message"]["content"] for choice in body["choices"]]
    assert texts == ["zero", "cut off", "two"]
    reasons = [choice["finish_reason"] for choice in body["choices"]]
    assert reasons == ["stop", "length", "stop"]
    # the prompt counts once
    prompt = len(served.engine.generates[0].prompt_ids)
    output = sum(len(tokenizer.encode_text(text)) for text in texts) + 2  # and two ends
    usage = body["usage"]
    assert (usage["prompt_tokens"], usage["completion_tokens"]) == (prompt, output)
    assert usage["total_tokens"] == prompt + output
    assert usage["prompt_tokens_details"]["cached_tokens"] == 1
    assert body["timings"]["predicted_n"] == output


async def test_the_others_start_when_the_first_has_computed_the_prompt(
    serve: Serve, tokenizer: Tokenizer
) -> None:
    gate = asyncio.Event()

    async def first(turn: Turn) -> None:
        await gate.wait()
        await say_text(tokenizer, "zero")(turn)

    script = each(first, *(say_text(tokenizer, text) for text in WORDS[1:]))
    async with serve(script, engine=FOUR) as served:
        task = asyncio.create_task(served.chat(n=4))
        await until(served, lambda: served.engine.generates)
        async with served.http.get(f"{served.url}/health") as answer:  # a round trip
            assert answer.status == 200
        assert len(served.engine.generates) == 1
        await has_open(served, 4)
        gate.set()
        _, body = await task
        asked = served.engine.generates
    assert [choice["message"]["content"] for choice in body["choices"]] == list(WORDS)
    assert [g.request_id for g in asked] == [body["id"], *(f"{body['id']}.{i}" for i in (1, 2, 3))]
    assert all((g.prompt_ids == asked[0].prompt_ids).all() for g in asked)
    built = [message.request_id for message in served.indexed if isinstance(message, BuildIndex)]
    assert built == [g.request_id for g in asked]


async def test_a_first_choice_without_a_token_keeps_nobody_waiting(
    serve: Serve, tokenizer: Tokenizer
) -> None:
    async def nothing(turn: Turn) -> None:
        await turn.finish("stop")

    async with serve(each(nothing, say_text(tokenizer, "one")), engine=FOUR) as served:
        _, body = await served.chat(n=2)
    assert [choice["message"]["content"] for choice in body["choices"]] == ["", "one"]


@pytest.mark.parametrize(
    ("seed", "seeds"), [(7, [7, 8, 9]), (-1, [2**64 - 1, 0, 1]), (2**64 - 2, [-2, -1, 0])]
)
async def test_choices_draw_with_the_seeds_that_follow_the_requests(
    serve: Serve, tokenizer: Tokenizer, seed: int, seeds: list[int]
) -> None:
    async with serve(saying(tokenizer, *WORDS), engine=FOUR) as served:
        await served.chat(n=3, seed=seed, temperature=1.0)
        drawn = [g.sampling.seed for g in served.engine.generates]
        assert drawn == [s % 2**64 for s in seeds]
        served.engine.generates.clear()
        await served.chat(seed=seed)
        assert served.engine.generates[0].sampling.seed == drawn[0]
        served.engine.generates.clear()
        await served.chat(n=3)
        unseeded = {g.sampling.seed for g in served.engine.generates}
        assert len(unseeded) == 3
        assert served.log_lines("request_start")[-1]["request"]["sampling"]["seed"] in unseeded


async def test_a_stream_interleaves_the_choices_and_finishes_each(
    serve: Serve, tokenizer: Tokenizer
) -> None:
    gates = [asyncio.Event() for _ in range(3)]
    script = each(*(after(gates, i, say_text(tokenizer, text)) for i, text in enumerate(WORDS[:3])))
    async with serve(script, engine=FOUR) as served:
        body = {"messages": MESSAGES, "stream": True, "n": 3}
        body["stream_options"] = {"include_usage": True}
        async with client_of(served) as client:
            stream = await client.chat.completions.create(model="tiny", **body)  # type: ignore[call-overload]
            chunks: list[Any] = []
            ended: list[int] = []
            for index in (1, 2, 0):  # the order in which they end
                gates[index].set()
                async for chunk in stream:
                    chunks.append(chunk)
                    if chunk.choices and chunk.choices[0].finish_reason:
                        ended.append(chunk.choices[0].index)
                        break
            chunks += [chunk async for chunk in stream]
    assert ended == [1, 2, 0]
    *said, last = chunks
    assert last.choices == []
    assert last.usage.completion_tokens == sum(
        len(tokenizer.encode_text(text)) + 1 for text in WORDS[:3]
    )
    assert all(chunk.usage is None for chunk in said)
    for index, word in enumerate(WORDS[:3]):
        own = [chunk.choices[0] for chunk in said if chunk.choices[0].index == index]
        assert own[0].delta.role == "assistant"
        assert "".join(choice.delta.content or "" for choice in own) == word
        assert [c.finish_reason for c in own if c.finish_reason] == [own[-1].finish_reason]


async def test_silence_is_filled_by_a_choice_that_goes_on(
    serve: Serve, tokenizer: Tokenizer
) -> None:
    gate = asyncio.Event()
    script = each(say_text(tokenizer, "zero"), after([gate, gate], 1, say_text(tokenizer, "one")))
    async with serve(script, engine=FOUR, heartbeat_s=0.05) as served, client_of(served) as client:
        stream = await client.chat.completions.create(
            model="tiny", messages=MESSAGES, n=2, stream=True
        )
        silent: list[int] = []  # the choices of empty chunks, once the first choice has ended
        has_ended = False
        async for chunk in stream:
            (choice,) = chunk.choices
            if has_ended and not choice.delta.content and not choice.finish_reason:
                silent.append(choice.index)
            has_ended = has_ended or (choice.index == 0 and choice.finish_reason is not None)
            if len(silent) == 3:
                gate.set()
    assert set(silent) == {1}


async def test_calls_are_numbered_within_their_choice(
    serve: Serve, tool_models: dict[str, Path], tokenizer: Tokenizer
) -> None:
    tool = {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}
    call = "<tool_call>\n<function=look>\n</function>\n</tool_call>"
    script = saying(tokenizer, call * 2, call)
    room = FOUR | {"max_context": 20_000}
    async with serve(script, model=tool_models["qwen"], engine=room) as served:
        _, body = await served.chat(n=2, tools=[tool])
        events = await served.events(n=2, tools=[tool])
    calls = [choice["message"]["tool_calls"] for choice in body["choices"]]
    assert [len(found) for found in calls] == [2, 1]
    assert len({c["id"] for found in calls for c in found}) == 3
    assert {choice["finish_reason"] for choice in body["choices"]} == {"tool_calls"}
    begun: dict[int, list[int]] = {0: [], 1: []}
    for event in events[:-1]:
        (choice,) = event["choices"]
        for piece in choice["delta"].get("tool_calls", []):
            if "id" in piece:
                begun[choice["index"]].append(piece["index"])
    assert begun == {0: [0, 1], 1: [0]}


async def test_a_stop_string_ends_its_own_choice(serve: Serve, tokenizer: Tokenizer) -> None:
    script = saying(tokenizer, "a stop here", "no end")
    async with serve(script, engine=FOUR) as served:
        _, body = await served.chat(n=2, stop=" stop")
        assert [stop.request_id for stop in served.engine.stops] == [body["id"]]
        line = await served.wait_for_log("request_done")
    assert [c["message"]["content"] for c in body["choices"]] == ["a", "no end"]
    reasons = [choice["finish_reason"] for choice in line["result"]["choices"]]
    assert reasons == ["stop_string", "stop"]


async def test_one_line_of_the_log_tells_of_all(serve: Serve, tokenizer: Tokenizer) -> None:
    async with serve(saying(tokenizer, "zero", "a longer one"), engine=FOUR) as served:
        await served.chat(n=2)
        line = await served.wait_for_log("request_done")
        assert len(served.log_lines("request_start")) == len(served.log_lines("request_done")) == 1
        values = await scrape(served)
        async with served.http.get(f"{served.url}/v1/ninfer/requests") as answer:
            assert answer.status == 200
    lengths = [len(tokenizer.encode_text(text)) + 1 for text in ("zero", "a longer one")]
    prompt = line["request"]["prompt_tokens"]
    result = line["result"]
    assert line["request"]["n"] == 2
    assert (result["finish_reason"], result["completion_tokens"]) == ("stop", sum(lengths))
    assert [c["completion_tokens"] for c in result["choices"]] == lengths
    assert [c["index"] for c in result["choices"]] == [0, 1]
    assert (result["prompt_tokens"], result["prefix_cache_hit_tokens"]) == (prompt, 1)
    assert result["computed_prefill_tokens"] == 2 * (prompt - 1)  # as this engine says of each
    assert values["vllm:request_success_total{finished_reason=stop}"] == 1
    assert values["vllm:prompt_tokens_total"] == prompt
    assert values["vllm:request_generation_tokens_sum"] == sum(lengths)
    assert values["vllm:request_time_per_output_token_seconds_count"] == 2
    assert values["vllm:generation_tokens_total"] == sum(lengths)


async def test_the_page_shows_each_choice(serve: Serve, tokenizer: Tokenizer) -> None:
    async with serve(saying(tokenizer, "zero", "one"), engine=FOUR) as served:
        _, body = await served.chat(n=2)
        texts = []
        for request_id in (body["id"], f"{body['id']}.1"):
            url = f"{served.url}/v1/ninfer/requests/{request_id}/text"
            async with served.http.get(url) as answer:
                segments = (await answer.json())["segments"]
            texts.append("".join(segment["text"] for segment in segments))
    assert texts == ["zero<|im_end|>", "one<|im_end|>"]


@contextlib.asynccontextmanager
async def leaving(served: Served, *, stream: bool) -> Any:
    """A client that asks for three choices, and is gone at the end of the block."""
    async with aiohttp.ClientSession() as http:
        body = {"messages": MESSAGES, "n": 3, "stream": stream}
        url = f"{served.url}/v1/chat/completions"
        task = asyncio.create_task(http.post(url, json=body).__aenter__())
        yield
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            (await task).close()


async def one_token_then_hang(turn: Turn) -> None:
    await turn.tokens([70])
    await hang(turn)


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize(("script", "begun"), [(one_token_then_hang, 3), (hang, 1)])
async def test_a_client_that_leaves_cancels_all(
    serve: Serve, script: Script, begun: int, stream: bool
) -> None:
    async with serve(script, engine=FOUR) as served:
        async with leaving(served, stream=stream):
            await until(served, lambda: len(served.engine.generates) == begun)
        await until(served, lambda: len(served.engine.cancels) == begun)
        line = await served.wait_for_log("request_done")
        await has_open(served, 0)
        assert len(served.log_lines()) == 3  # with the starts of server and request
        assert sorted(served.engine.cancels) == [g.request_id for g in served.engine.generates]
    assert line["result"]["finish_reason"] == "cancelled"
    assert line["result"]["completion_tokens"] == (begun if begun == 3 else 0)


def failing(code: FailureCode) -> Script:
    async def script(turn: Turn) -> None:
        await turn.tokens([70])
        await turn.fail(code, "a pass failed")

    return script


@pytest.mark.parametrize("failed", [0, 2])
@pytest.mark.parametrize("stream", [True, False])
async def test_a_choice_that_fails_fails_the_request(
    serve: Serve, failed: int, stream: bool
) -> None:
    scripts: list[Script] = [one_token_then_hang] * 3
    scripts[failed] = failing("server_error")
    async with serve(each(*scripts), engine=FOUR) as served:
        if stream:
            events = await served.events(n=3)
            assert [e["error"]["message"] for e in events if "error" in e] == ["a pass failed"]
            assert "error" in events[-1]
        else:
            status, body = await served.chat(n=3)
            assert (status, body["error"]["message"]) == (500, "a pass failed")
        await has_open(served, 0)
        assert len(served.engine.cancels) == 2
        (line,) = served.log_lines("request_error")
        assert not served.log_lines("request_done")
    assert line["phase"] == "generate"


async def test_an_engine_that_dies_fails_them_together(serve: Serve) -> None:
    async with serve(one_token_then_hang, engine=FOUR) as served:
        task = asyncio.create_task(served.events(n=3))
        await until(served, lambda: len(served.engine.generates) == 3)
        await served.engine.crash()
        events = await task
        await has_open(served, 0)
        assert len(served.log_lines("request_error")) == 1
    assert [e["error"]["code"] for e in events if "error" in e] == ["engine_dead"]


async def test_there_is_room_for_all_or_none_is_taken(serve: Serve, tokenizer: Tokenizer) -> None:
    gate = asyncio.Event()

    async def script(turn: Turn) -> None:
        await gate.wait()
        await say_text(tokenizer, "x")(turn)

    async with serve(script, engine=FOUR) as served:
        status, body = await served.chat(n=5)
        assert (status, body["error"]["param"]) == (400, "n")
        assert "at most 4" in body["error"]["message"]
        waiting = asyncio.create_task(served.chat())
        await until(served, lambda: served.engine.generates)
        status, body = await served.chat(n=4)
        assert (status, body["error"]["code"]) == (429, "rate_limit_exceeded")
        assert len(served.engine.generates) == 1
        others = asyncio.create_task(served.chat(n=3))
        await has_open(served, 4)
        gate.set()
        assert [(await task)[0] for task in (waiting, others)] == [200, 200]
        status, _ = await served.chat(n=4)
        assert status == 200
        await has_open(served, 0)


async def test_a_session_goes_on_with_one_answer(serve: Serve, tokenizer: Tokenizer) -> None:
    named = {"X-NInfer-Draft-Session": "mine"}

    async def ask(served: Served, n: int) -> tuple[int, Any]:
        body = {"messages": MESSAGES, "n": n}
        url = f"{served.url}/v1/chat/completions"
        async with served.http.post(url, json=body, headers=named) as answer:
            return answer.status, await answer.json()

    script = saying(tokenizer, *WORDS)
    async with serve(script, engine=FOUR, ngram_archive_mib=8) as served:
        status, body = await ask(served, 2)
        assert (status, body["error"]["param"]) == (400, "n")
        assert not served.engine.generates
        assert (await ask(served, 1))[0] == 200
    async with serve(script, engine=FOUR) as served:  # nothing is retained anyway
        assert (await ask(served, 2))[0] == 200


async def test_the_sdk_asks_for_text_completions(serve: Serve, tokenizer: Tokenizer) -> None:
    async with (
        serve(saying(tokenizer, *WORDS), engine=FOUR) as served,
        client_of(served) as client,
    ):
        whole = await client.completions.create(model="tiny", prompt="a", n=4)
        stream = await client.completions.create(model="tiny", prompt="a", n=2, stream=True)
        texts = {0: "", 1: ""}
        ends = []
        async for chunk in stream:
            (choice,) = chunk.choices
            texts[choice.index] += choice.text
            ends += [choice.index] if choice.finish_reason else []
    assert [(c.index, c.text) for c in whole.choices] == list(enumerate(WORDS))
    assert texts == {0: "zero", 1: "one"}
    assert sorted(ends) == [0, 1]


async def test_the_sdks_stream_helper_puts_them_together(
    serve: Serve, tokenizer: Tokenizer
) -> None:
    async with (
        serve(saying(tokenizer, *WORDS), engine=FOUR) as served,
        client_of(served) as client,
        client.chat.completions.stream(model="tiny", messages=MESSAGES, n=4) as stream,  # type: ignore[arg-type]
    ):
        final = await stream.get_final_completion()
    assert [choice.message.content for choice in final.choices] == list(WORDS)
    assert {choice.finish_reason for choice in final.choices} == {"stop"}
