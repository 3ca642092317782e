"""Streams: the order of events, framing, heartbeats and text."""

import asyncio
import json
from typing import Any

import pytest

from services.gateway.config import GatewayConfig
from shared.messages import SourceStats
from shared.tokenizer import Tokenizer
from tests.gateway.conftest import MESSAGES, Serve, Served, text_of
from tests.scripted_engine import Turn, say


async def test_events_come_in_the_order_that_clients_expect(
    serve: Serve, tokenizer: Tokenizer
) -> None:
    pieces = [tokenizer.encode_text(text).tolist() for text in ("Hel", "lo")]
    async with serve(say(pieces)) as served:
        *chunks, usage, done = await served.events(stream_options={"include_usage": True})
    choices = [chunk["choices"][0] for chunk in chunks]
    assert choices[0]["delta"] == {"role": "assistant", "content": ""}
    assert choices[-1]["delta"] == {}
    # rounds that come together leave together, so there are one or two pieces
    assert "".join(choice["delta"]["content"] for choice in choices[1:-1]) == "Hello"
    assert {choice["finish_reason"] for choice in choices[:-1]} == {None}
    assert choices[-1]["finish_reason"] == "stop"
    assert usage["choices"] == []
    assert usage["usage"]["completion_tokens"] == 6  # the end token counts
    assert done == "[DONE]"


async def test_every_chunk_has_the_same_envelope(serve: Serve, tokenizer: Tokenizer) -> None:
    async with serve(say([tokenizer.encode_text("ab").tolist()])) as served:
        *chunks, _ = await served.events(stream_options={"include_usage": True})
    envelopes = {(c["id"], c["object"], c["created"], c["model"]) for c in chunks}
    assert len(envelopes) == 1
    identifier, kind, created, model = envelopes.pop()
    assert identifier.startswith("chatcmpl-")
    assert (kind, model) == ("chat.completion.chunk", "tiny")
    assert isinstance(created, int)
    assert all(c["choices"][0]["index"] == 0 for c in chunks[:-1])


async def test_usage_comes_only_when_asked_for(serve: Serve) -> None:
    async with serve(say([])) as served:
        events = await served.events()
    assert all("usage" not in e for e in events if e != "[DONE]")
    assert events[-1] == "[DONE]"


async def test_the_headers_are_those_of_an_unbuffered_stream(serve: Serve) -> None:
    async with serve(say([])) as served:
        body = {"messages": MESSAGES, "stream": True}
        async with served.http.post(f"{served.url}/v1/chat/completions", json=body) as answer:
            await answer.read()
    assert answer.headers["Content-Type"] == "text/event-stream; charset=utf-8"
    assert answer.headers["Cache-Control"] == "no-cache"
    assert answer.headers["X-Accel-Buffering"] == "no"
    assert answer.headers["x-request-id"].startswith("chatcmpl-")
    assert answer.headers["Transfer-Encoding"] == "chunked"


async def test_silence_is_filled_with_empty_chunks(serve: Serve, tokenizer: Tokenizer) -> None:
    script = say([tokenizer.encode_text("x").tolist()], delay_s=0.5)
    async with serve(script, heartbeat_s=0.1) as served:
        events = await served.events()
    beats = [e for e in events[1:-2] if e["choices"][0]["delta"] == {}]
    assert len(beats) >= 3
    assert all(beat["choices"][0]["finish_reason"] is None for beat in beats)
    assert text_of(events) == "x"


async def test_held_back_text_counts_as_silence(serve: Serve, tokenizer: Tokenizer) -> None:
    script = say([[token] for token in tokenizer.encode_text("a" * 20).tolist()], delay_s=0.05)
    async with serve(script, heartbeat_s=0.2) as served:
        events = await served.events(stop=["a" * 30])
    deltas = [e["choices"][0]["delta"] for e in events[1:-2]]
    assert deltas.count({}) >= 2
    assert text_of(events) == "a" * 20


async def test_the_first_chunk_does_not_wait_for_the_engine(serve: Serve) -> None:
    async with serve(say([], delay_s=0)) as served:

        async def slow(turn: Turn) -> None:
            await asyncio.sleep(1.0)
            await turn.finish("stop")

        served.engine.script = slow
        body = {"messages": MESSAGES, "stream": True}
        async with (
            asyncio.timeout(0.8),
            served.http.post(f"{served.url}/v1/chat/completions", json=body) as answer,
        ):
            first = await answer.content.readuntil(b"\n\n")
    assert b'"role":"assistant"' in first


async def test_characters_split_over_tokens_arrive_whole(
    serve: Serve, tokenizer: Tokenizer
) -> None:
    text = "né 日本 👩‍👩‍👧!"
    async with serve(say([[token] for token in tokenizer.encode_text(text).tolist()])) as served:
        events = await served.events()
    assert text_of(events) == text
    contents = [e["choices"][0]["delta"].get("content", "") for e in events[:-1]]
    assert all("\ufffd" not in content for content in contents)


async def test_an_unfinished_character_is_replaced_at_the_end(
    serve: Serve, tokenizer: Tokenizer
) -> None:
    async with serve(say([tokenizer.encode_text("a日").tolist()[:-1]])) as served:
        assert text_of(await served.events()) == "a\ufffd"


async def test_special_tokens_in_the_output_carry_no_text(
    serve: Serve, tokenizer: Tokenizer
) -> None:
    ids = tokenizer.encode_text("ab").tolist()
    async with serve(say([[ids[0], tokenizer.special_id("<|im_start|>"), ids[1]]])) as served:
        assert text_of(await served.events()) == "ab"


async def test_usage_and_timings_report_drafts_and_predictions(serve: Serve) -> None:
    async def script(turn: Turn) -> None:
        turn.sources = (
            SourceStats(kind="prompt", rounds=2, drafted_tokens=20, accepted_tokens=9),
            SourceStats(kind="predicted", rounds=1, drafted_tokens=10, accepted_tokens=7),
        )
        await turn.tokens([5] * 18, copied=16)
        await turn.finish("length")

    async with serve(script) as served:
        status, body = await served.chat(prediction={"type": "content", "content": "xyz"})
    assert status == 200
    prompt_tokens = len(served.engine.generates[0].prompt_ids)
    assert body["choices"][0]["finish_reason"] == "length"
    assert body["usage"] == {
        "prompt_tokens": prompt_tokens,
        "completion_tokens": 18,
        "total_tokens": prompt_tokens + 18,
        "prompt_tokens_details": {"cached_tokens": 1, "audio_tokens": 0},
        "completion_tokens_details": {
            "reasoning_tokens": 0,
            "audio_tokens": 0,
            "accepted_prediction_tokens": 7,
            "rejected_prediction_tokens": 3,
        },
    }
    assert body["timings"]["draft_n"] == 30
    assert body["timings"]["draft_n_accepted"] == 16
    assert body["timings"]["predicted_n"] == 18


async def test_the_contexts_end_is_a_length_stop(serve: Serve) -> None:
    async def script(turn: Turn) -> None:
        await turn.tokens([5])
        await turn.finish("context")

    async with serve(script) as served:
        events = await served.events()
    assert events[-2]["choices"][0]["finish_reason"] == "length"


async def test_a_failed_request_ends_its_stream_with_an_error_event(serve: Serve) -> None:
    async def script(turn: Turn) -> None:
        await turn.tokens([5])
        await turn.fail("server_error", "a pass failed")

    async with serve(script) as served:
        events = await served.events()
    assert events[-1] == {
        "error": {
            "message": "a pass failed",
            "type": "server_error",
            "param": None,
            "code": "server_error",
        }
    }


async def test_a_failed_request_without_a_stream_has_the_status(serve: Serve) -> None:
    async def script(turn: Turn) -> None:
        await turn.fail("deadline_passed", "no row was free in time")

    async with serve(script) as served:
        status, body = await served.chat()
    assert status == 504
    assert body["error"]["code"] == "deadline_passed"


async def test_a_reader_that_is_too_slow_is_cancelled(serve: Serve, config: GatewayConfig) -> None:
    async def flood(turn: Turn) -> None:
        while True:
            await turn.tokens([70] * 1000)
            await asyncio.sleep(0)

    async with serve(flood, slow_reader_s=0.3, engine={"pulse_s": 5.0}) as served:
        host, port = served.url.removeprefix("http://").split(":")
        _, writer = await asyncio.open_connection(host, int(port), limit=1024)
        body = b'{"messages":[{"role":"user","content":"x"}],"stream":true}'
        writer.write(
            b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\n"
            b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)
        )
        await served.engine.wait_for(lambda: served.engine.cancels, timeout_s=50)
        writer.close()
        line = await served.wait_for_log("request_done")
    assert line["result"]["finish_reason"] == "cancelled"


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions"])
async def test_timings_per_token_stand_in_every_chunk_that_has_some(
    serve: Serve, path: str
) -> None:
    async def script(turn: Turn) -> None:
        await turn.tokens([70])
        await turn.tokens([71, 72, 73], copied=2)
        await turn.finish()

    asked = {"messages": MESSAGES} if "chat" in path else {"prompt": "hi"}

    async def chunks(served: Served, **fields: Any) -> list[Any]:
        body = asked | {"stream": True} | fields
        async with served.http.post(served.url + path, json=body) as answer:
            blocks = (await answer.text()).split("\n\n")
        return [json.loads(b.removeprefix("data: ")) for b in blocks if "{" in b]

    async with serve(script) as served:
        _, *deltas, last = await chunks(served, timings_per_token=True)
        prompt_tokens = len(served.engine.generates[0].prompt_ids)
        plain = await chunks(served)
    assert deltas
    assert all(chunk["timings"]["prompt_n"] == prompt_tokens for chunk in deltas)
    assert deltas[-1]["timings"]["predicted_n"] == 4
    assert deltas[-1]["timings"]["draft_n_accepted"] == 2
    assert last["timings"]["predicted_n"] == 4
    assert [i for i, chunk in enumerate(plain) if "timings" in chunk] == [len(plain) - 1]
