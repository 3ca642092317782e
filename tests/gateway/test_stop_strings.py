"""Stop strings: what is held back, what is cut, what the engine is told."""

import asyncio

import pytest

from services.gateway.output.events import Content
from services.gateway.output.output import Output, PlainParser
from shared.tokenizer import Tokenizer
from tests.gateway.conftest import Serve, text_of
from tests.scripted_engine import Turn, say


def feed(tokenizer: Tokenizer, text: str, stops: tuple[str, ...]) -> tuple[list[str], Output]:
    """The pieces that come out of an output token by token (a byte each), with its end."""
    output = Output(tokenizer, PlainParser(), stops)
    events = [output.push([token]) for token in tokenizer.encode_text(text).tolist()]
    events.append(output.finish())
    pieces = [
        "".join(event.text for event in some if isinstance(event, Content)) for some in events
    ]
    return pieces, output


@pytest.mark.parametrize(
    ("text", "stops", "expected"),
    [
        ("one two three", ("two",), "one "),
        ("one two three", ("four",), "one two three"),
        ("ababac!", ("abac",), "ab"),
        ("a\n\nb", ("\n\n",), "a"),
        ("xyz", ("z", "yz"), "x"),
        ("stop", ("stop",), ""),
        ("日本語", ("本",), "日"),
        ("almost sto", ("stop",), "almost sto"),
        ("aaa", ("aaaa",), "aaa"),
    ],
)
def test_the_text_ends_before_the_first_stop(
    tokenizer: Tokenizer, text: str, stops: tuple[str, ...], expected: str
) -> None:
    pieces, output = feed(tokenizer, text, stops)
    assert "".join(pieces) == expected
    assert (output.stop is not None) == (expected != text)


def test_only_what_may_become_a_stop_is_held_back(tokenizer: Tokenizer) -> None:
    pieces, _ = feed(tokenizer, "abXab", ("abc",))
    assert pieces == ["", "", "abX", "", "", "ab"]


def test_tokens_count_up_to_the_one_that_completed_the_stop(tokenizer: Tokenizer) -> None:
    output = Output(tokenizer, PlainParser(), ("cd",))
    assert output.push(tokenizer.encode_text("abcdefgh").tolist()) == [Content("ab")]
    assert output.tokens == 4
    assert output.push(tokenizer.encode_text("more").tolist()) == []
    assert output.tokens == 4


async def test_a_stop_across_rounds_ends_the_stream_and_tells_the_engine(
    serve: Serve, tokenizer: Tokenizer
) -> None:
    ids = tokenizer.encode_text("Hello END leaked").tolist()

    async def script(turn: Turn) -> None:
        await turn.tokens(ids[:7])  # "Hello E"
        await turn.tokens(ids[7:8])
        await turn.tokens(ids[8:])
        await asyncio.Event().wait()

    async with serve(script) as served:
        events = await served.events(stop=["END", "other"], stream_options={"include_usage": True})
        stops = served.engine.stops
        line = await served.wait_for_log("request_done")
    assert text_of(events) == "Hello "
    assert events[-3]["choices"][0]["finish_reason"] == "stop"
    assert [stop.output_tokens for stop in stops] == [9]
    assert events[-2]["usage"]["completion_tokens"] == 9
    assert line["result"]["finish_reason"] == "stop_string"
    assert line["result"]["completion_tokens"] == 9


async def test_a_stop_in_the_last_round_is_a_stop_too(serve: Serve, tokenizer: Tokenizer) -> None:
    async with serve(say([tokenizer.encode_text("a;b").tolist()])) as served:
        status, body = await served.chat(stop=";")
    assert status == 200
    assert body["choices"][0]["message"]["content"] == "a"
    assert body["choices"][0]["finish_reason"] == "stop"
    assert body["usage"]["completion_tokens"] == 2
