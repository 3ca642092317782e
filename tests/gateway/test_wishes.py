"""What a chat body asks of the engine reaches it, and logprobs come back with their text."""

from typing import Any

import numpy as np
import pytest

from shared.messages import OutputTokens, Speculation, TokenLogprobs
from tests.gateway.conftest import Serve
from tests.scripted_engine import Script, Turn, say


async def test_every_wish_reaches_the_engine(serve: Serve) -> None:
    async with serve(say([])) as served:
        status, body = await served.chat(
            presence_penalty=0.5,
            frequency_penalty=-0.25,
            repetition_penalty=1.1,
            logit_bias={"7": 2, "9": -100},
            min_tokens=3,
            max_tokens=9,
            logprobs=True,
            top_logprobs=4,
            ninfer={"ngram_draft_tokens": 5, "ngram_min_match": 9, "cache_salt": "mine"},
        )
        assert status == 200, body
        (asked,) = served.engine.generates
    sampling = asked.sampling
    assert (sampling.presence_penalty, sampling.frequency_penalty) == (0.5, -0.25)
    assert sampling.repetition_penalty == 1.1
    assert dict(sampling.logit_bias) == {7: 2.0, 9: -100.0}
    assert (asked.min_output_tokens, asked.top_logprobs, asked.cache_salt) == (3, 4, "mine")
    assert asked.speculation == Speculation(ngram_draft_tokens=5, ngram_min_match=9)


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ({}, Speculation()),
        ({"ninfer": {}}, Speculation()),
        ({"ninfer": {"speculation": False}}, Speculation(ngram_draft_tokens=0, draft_tokens=0)),
    ],
)
async def test_speculation_can_be_turned_off_by_a_request(
    serve: Serve, given: dict[str, Any], wanted: Speculation
) -> None:
    async with serve(say([])) as served:
        await served.chat(**given)
        assert served.engine.generates[0].speculation == wanted


def say_with_logprobs(pieces: list[list[int]], width: int) -> Script:
    async def script(turn: Turn) -> None:
        for ids in pieces:
            count = len(ids)
            turn.sent += count
            top_ids = np.array([i + k for i in ids for k in range(width)], np.int32)
            message = OutputTokens(
                request_id=turn.generate.request_id,
                token_ids=np.array(ids, np.int32),
                copied=0,
                logprobs=TokenLogprobs(
                    width=width,
                    chosen=np.array([-i / 100 for i in ids], np.float32),
                    top_ids=top_ids,
                    top=-top_ids.astype(np.float32) / 100,
                ),
            )
            await turn.engine.send(turn.gateway, message)
        await turn.finish("stop")

    return script


async def test_logprobs_stand_with_the_text_of_their_tokens(serve: Serve) -> None:
    async with serve(say([])) as served:
        ids = served.tokenizer.encode_text("def total(items): return 0").tolist()
        stop = served.tokenizer.stop_ids[0]
        served.engine.script = say_with_logprobs([ids[:3], ids[3:], [stop]], width=2)
        status, body = await served.chat(logprobs=True, top_logprobs=2)
        assert status == 200
        entries = body["choices"][0]["logprobs"]["content"]
        assert "".join(e["token"] for e in entries) == body["choices"][0]["message"]["content"]
        assert [e["logprob"] for e in entries] == pytest.approx([-i / 100 for i in ids])
        assert all(len(e["top_logprobs"]) == 2 for e in entries)
        assert entries[0]["top_logprobs"][0] == {
            k: v for k, v in entries[0].items() if k != "top_logprobs"
        }
        events = await served.events(logprobs=True, top_logprobs=2)
        chunks = [e["choices"][0] for e in events if e != "[DONE]" and e["choices"]]
        streamed = [e for c in chunks if c["logprobs"] for e in c["logprobs"]["content"]]
        assert streamed == entries


@pytest.mark.parametrize("at_once", [1, 2, 7, 100])
@pytest.mark.parametrize(
    ("stop", "said"), [(" three", "one two"), ("wo th", "one t"), ("r", "one two th")]
)
async def test_what_a_stop_string_cuts_off_has_no_logprobs(
    serve: Serve, at_once: int, stop: str, said: str
) -> None:
    """However the engine's messages group the tokens, here one a character."""
    async with serve(say([])) as served:
        ids = served.tokenizer.encode_text("one two three four").tolist()
        messages = [ids[at : at + at_once] for at in range(0, len(ids), at_once)]
        served.engine.script = say_with_logprobs(messages, width=0)
        status, body = await served.chat(logprobs=True, stop=stop)
        assert status == 200
        choice = body["choices"][0]
        assert choice["message"]["content"] == said
        assert [e["token"] for e in choice["logprobs"]["content"]] == list(said)
        events = await served.events(logprobs=True, stop=stop)
        chunks = [e["choices"][0] for e in events if e != "[DONE]" and e["choices"]]
        streamed = [e for c in chunks if c["logprobs"] for e in c["logprobs"]["content"]]
        assert streamed == choice["logprobs"]["content"]


async def test_without_logprobs_there_are_none(serve: Serve) -> None:
    async with serve(say([[40, 41]])) as served:
        _, body = await served.chat()
        assert body["choices"][0]["logprobs"] is None


async def test_a_stream_ends_with_the_servers_own_facts(serve: Serve) -> None:
    async with serve(say([[40, 41, 42]])) as served:
        *_, finish, done = await served.events()
        assert done == "[DONE]"
        assert finish["choices"][0]["finish_reason"] == "stop"
        assert finish["timings"]["predicted_n"] == 4
        assert finish["ninfer"]["speculative"]["num_drafts"] == 0


async def test_what_is_no_text_in_a_tools_result_is_named_and_elsewhere_refused(
    serve: Serve,
) -> None:
    image = {"type": "image_url", "image_url": {"url": "data:,"}}
    result = {
        "role": "tool",
        "tool_call_id": "1",
        "content": [{"type": "text", "text": "a"}, image],
    }
    said = {"role": "assistant", "content": [{"type": "refusal", "refusal": "no"}]}
    async with serve(say([])) as served:
        status, body = await served.chat(messages=[{"role": "user", "content": "hi"}, said, result])
        assert status == 200, body
        prompt = served.tokenizer.decode(served.engine.generates[0].prompt_ids)
        assert "a[an image, which this model cannot see]" in prompt
        assert "no" in prompt
        status, body = await served.chat(messages=[{"role": "user", "content": [image]}])
        assert (status, body["error"]["param"]) == (400, "messages[0].content[0]")


async def test_completions_hold_to_grammars_and_blame_their_prompt(serve: Serve) -> None:
    async with serve(say([]), engine={"max_context": 64}) as served:
        url = f"{served.url}/v1/completions"
        wanted = {"prompt": "a", "structured_outputs": {"regex": "[0-9]+"}}
        async with served.http.post(url, json=wanted) as answer:
            assert answer.status == 200
        assert served.engine.generates[0].grammar is not None
        async with served.http.post(url, json={"prompt": "word " * 200}) as answer:
            assert answer.status == 400
            assert (await answer.json())["error"]["param"] == "prompt"
