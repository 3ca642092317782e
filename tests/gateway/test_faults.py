"""Clients that leave, engines that die, queues that are full, indexers that are absent."""

import asyncio
import time
from typing import Any

import aiohttp
import pytest
from structlog.testing import capture_logs

from services.gateway.engine_link import EngineLink
from shared.endpoints import in_directory
from shared.errors import EngineDead
from shared.messages import BuildIndex, Cancel, DropIndex, OutputTokens
from shared.tokenizer import Tokenizer
from tests.gateway.conftest import MESSAGES, Serve, Served
from tests.scripted_engine import ScriptedEngine, Turn, hang, say


async def one_token_then_hang(turn: Turn) -> None:
    await turn.tokens([70])
    await asyncio.Event().wait()


async def leave(served: Served, *, stream: bool) -> None:
    """Sends a request and closes the connection once the engine has it."""
    body = {"messages": MESSAGES, "stream": stream}
    async with aiohttp.ClientSession() as session:
        task = asyncio.create_task(session.post(f"{served.url}/v1/chat/completions", json=body))
        await served.engine.wait_for(lambda: served.engine.generates)
        await asyncio.sleep(0.05)
        if not task.done():
            task.cancel()
        else:
            task.result().close()


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("script", [hang, one_token_then_hang], ids=["prefill", "decode"])
async def test_a_client_that_leaves_is_cancelled_at_once(
    serve: Serve, script: Any, stream: bool
) -> None:
    async with serve(script) as served:
        await leave(served, stream=stream)
        await served.engine.wait_for(lambda: served.engine.cancels, timeout_s=1.0)
        line = await served.wait_for_log("request_done")
        await served.engine.wait_for(lambda: len(served.indexed) == 2)
    assert served.engine.cancels == [served.engine.generates[0].request_id]
    assert line["result"]["finish_reason"] == "cancelled"
    assert not served.log_lines("request_error")
    assert isinstance(served.indexed[1], DropIndex)


async def test_a_client_whose_body_is_half_sent_holds_no_place(serve: Serve) -> None:
    async with serve(say([]), engine={"max_concurrency": 1, "max_waiting": 0}) as served:
        host, port = served.url.removeprefix("http://").split(":")
        _, writer = await asyncio.open_connection(host, int(port))
        writer.write(
            b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\n"
            b"Content-Type: application/json\r\nContent-Length: 100\r\n\r\n{"
        )
        await writer.drain()
        await asyncio.sleep(0.1)
        assert (await served.chat())[0] == 200
        writer.close()
        line = (await served.wait_for_log("request_error"))["error"]
        assert line["code"] == "client_disconnected"


async def test_requests_beyond_the_engines_room_get_429(serve: Serve) -> None:
    async with serve(hang, engine={"max_concurrency": 1, "max_waiting": 1}) as served:
        held = [asyncio.create_task(served.chat()) for _ in range(2)]
        await served.engine.wait_for(lambda: len(served.engine.generates) == 2)
        body = {"messages": MESSAGES}
        async with served.http.post(f"{served.url}/v1/chat/completions", json=body) as answer:
            assert answer.status == 429
            assert int(answer.headers["Retry-After"]) >= 1
            error = (await answer.json())["error"]
        assert error["code"] == "rate_limit_exceeded"
        for task in held:
            task.cancel()
        await served.engine.wait_for(lambda: len(served.engine.cancels) == 2)
        served.engine.script = say([])
        await served.wait_for_log("request_done", 2)
        assert (await served.chat())[0] == 200


async def test_an_engine_that_dies_fails_its_streams_within_two_seconds(serve: Serve) -> None:
    async with serve(one_token_then_hang) as served:
        stream = asyncio.create_task(served.events())
        whole = asyncio.create_task(served.chat())
        await served.engine.wait_for(lambda: len(served.engine.generates) == 2)
        await asyncio.sleep(0.1)
        died_s = time.monotonic()
        await served.engine.crash()
        events = await stream
        status, body = await whole
        await served.wait_for_health(503)
        assert time.monotonic() - died_s < 2.0
        assert events[-1]["error"]["code"] == "engine_dead"
        assert (status, body["error"]["code"]) == (503, "engine_dead")
        refused, body = await served.chat()
        assert (refused, body["error"]["code"]) == (503, "engine_dead")
        lines = served.log_lines("request_error")
        assert [line["phase"] for line in lines] == ["generate", "generate", "prepare"]

        async with ScriptedEngine(served.engine.channels, say([])):
            await served.wait_for_health(200)
            assert (await served.chat())[0] == 200
            await served.wait_for_log("server_start", 2)


async def test_health_asks_to_try_again_while_there_is_no_engine(serve: Serve) -> None:
    async with serve(say([])) as served:
        await served.engine.crash()
        await served.wait_for_health(503)
        async with served.http.get(f"{served.url}/v1/health") as answer:
            body = await answer.json()
            assert answer.headers["Retry-After"]
    assert body["services"] == {"gateway": "ok", "engine": "unavailable", "indexer": "ok"}


async def test_a_silent_engine_counts_as_dead(short_folder: Any) -> None:
    channels = in_directory(short_folder / "sockets")
    started: list[Any] = []
    link = EngineLink(channels.generate, started.append, silent_s=0.5)
    running = asyncio.create_task(link.run())
    async with ScriptedEngine(channels, hang) as engine:
        await engine.wait_for(lambda: link.ready)
        queue = link.register("r")
        await asyncio.sleep(0.8)
        assert link.ready, "a pulse keeps it alive"
        await engine.fall_silent()
        async with asyncio.timeout(2.0):
            assert isinstance(await queue.get(), EngineDead)
        assert link.ready is None
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    link.close()
    assert len(started) == 1


async def test_an_engine_that_stops_in_order_does_not_pass_for_an_end(serve: Serve) -> None:
    async def stopping(turn: Turn) -> None:
        await turn.tokens([70])
        await turn.finish("cancelled")

    async with serve(stopping) as served:
        events = await served.events()
    assert events[-1]["error"]["code"] == "engine_dead"


async def test_tokens_for_nobody_are_cancelled(serve: Serve) -> None:
    async with serve(say([])) as served:
        await served.chat()
        engine = served.engine
        message = OutputTokens(
            request_id=engine.generates[0].request_id,
            token_ids=engine.generates[0].prompt_ids,
            copied=0,
        )
        await engine.send_to_all(message)
        await engine.wait_for(lambda: engine.cancels)
    assert engine.cancels == [message.request_id]


async def test_garbage_from_the_engine_changes_nothing(serve: Serve) -> None:
    async with serve(say([])) as served:
        with capture_logs() as logs:
            await served.engine.send_raw(b"\xc1garbage")
            assert (await served.chat())[0] == 200
    assert any(line["event"] == "garbage" for line in logs)


async def test_the_prompt_goes_to_the_indexer_with_the_request(
    serve: Serve, tokenizer: Tokenizer
) -> None:
    messages = [
        {"role": "user", "content": "read"},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {
                    "id": "1",
                    "type": "function",
                    "function": {"name": "read", "arguments": '{"path": "a"}'},
                }
            ],
        },
        {"role": "tool", "content": "first", "tool_call_id": "1"},
        {"role": "tool", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
        {"role": "function", "name": "f", "content": "old"},
    ]
    prediction = {"type": "content", "content": [{"type": "text", "text": "guess"}]}
    async with serve(say([])) as served:
        assert (await served.chat(messages=messages, prediction=prediction))[0] == 200
        await served.engine.wait_for(lambda: len(served.indexed) == 2)
    build, drop = served.indexed
    generate = served.engine.generates[0]
    assert isinstance(build, BuildIndex)
    assert generate.expect_index
    assert build.request_id == generate.request_id
    assert build.prompt_ids.tolist() == generate.prompt_ids.tolist()
    assert build.tool_texts == ("first", "a", "b", "old")
    assert build.user_texts == ("read",)
    assert build.call_arguments == ('{"path": "a"}',)
    assert build.predicted == "guess"
    assert drop == DropIndex(request_id=generate.request_id)


async def test_without_an_indexer_requests_go_on_and_the_log_says_so(serve: Serve) -> None:
    async with serve(say([]), indexer=False) as served:
        with capture_logs() as logs:
            assert (await served.chat())[0] == 200
    assert served.engine.generates[0].expect_index is False
    assert any(line["event"] == "indexer_absent" for line in logs)


async def test_an_engine_that_does_not_copy_needs_no_index(serve: Serve) -> None:
    async with serve(say([]), engine={"ngram_draft_tokens": 0}) as served:
        await served.chat()
        await asyncio.sleep(0.05)
    assert served.indexed == []
    assert served.engine.generates[0].expect_index is False


async def test_shutting_down_lets_a_short_request_finish(
    serve: Serve, tokenizer: Tokenizer
) -> None:
    script = say([tokenizer.encode_text("whole").tolist()], delay_s=0.3)
    async with serve(script, drain_s=5.0) as served:
        answer = asyncio.create_task(served.chat())
        await served.engine.wait_for(lambda: served.engine.generates)
        await served.gateway.runner.cleanup()
        status, body = await answer
    assert (status, body["choices"][0]["message"]["content"]) == (200, "whole")


async def test_shutting_down_cancels_what_does_not_finish(serve: Serve) -> None:
    async with serve(hang, drain_s=0.2) as served:
        stream = asyncio.create_task(served.events())
        await served.engine.wait_for(lambda: served.engine.generates)
        began_s = time.monotonic()
        await served.gateway.runner.cleanup()
        assert time.monotonic() - began_s < 3.0
        await served.engine.wait_for(lambda: served.engine.cancels)
        with pytest.raises((aiohttp.ClientError, AssertionError)):
            await stream


async def test_sending_without_an_engine_fails_at_once(short_folder: Any) -> None:
    link = EngineLink(in_directory(short_folder / "s").generate, lambda _: None)
    with pytest.raises(EngineDead):
        link.send(Cancel(request_id="r"))
    link.close()
