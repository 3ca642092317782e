"""Sampling rules, logprobs and prefix reuse over HTTP, with the official SDK."""

from typing import Any

import openai
import pytest

from tests.e2e.conftest import Server

pytestmark = pytest.mark.e2e
STORY: list[Any] = [{"role": "user", "content": "Count: one, two, three, one, two, three, one"}]


@pytest.fixture
def client(server: Server) -> openai.OpenAI:
    return openai.OpenAI(base_url=server.url, api_key="unused")


def ask(client: openai.OpenAI, **options: Any) -> Any:
    model = client.models.list().data[0].id
    return client.chat.completions.create(
        model=model, messages=STORY, **({"max_tokens": 30, "temperature": 0} | options)
    )


def test_logprobs_are_those_of_the_text(client: openai.OpenAI) -> None:
    choice = ask(client, logprobs=True, top_logprobs=3).choices[0]
    entries = choice.logprobs.content
    assert b"".join(bytes(e.bytes) for e in entries).decode(errors="replace") == (
        choice.message.content
    )
    for entry in entries:
        assert entry.logprob == entry.top_logprobs[0].logprob <= 0
        ranked = [e.logprob for e in entry.top_logprobs]
        assert ranked == sorted(ranked, reverse=True)


def test_a_bias_forbids_a_token_and_a_penalty_changes_the_text(client: openai.OpenAI) -> None:
    free = ask(client).choices[0].message.content
    assert ask(client, frequency_penalty=2.0).choices[0].message.content != free
    entries = ask(client, logprobs=True, logit_bias={"40": 100}).choices[0].logprobs.content
    assert len({e.token for e in entries}) == 1


def test_speculation_is_turned_off_for_one_request(client: openai.OpenAI) -> None:
    off = ask(client, extra_body={"ninfer": {"speculation": False}})
    assert off.choices[0].message.content == ask(client).choices[0].message.content


def test_the_same_prompt_again_is_reused(client: openai.OpenAI) -> None:
    ask(client)
    usage = ask(client).usage
    assert usage.prompt_tokens_details.cached_tokens == usage.prompt_tokens - 1
    salted = ask(client, extra_body={"ninfer": {"cache_salt": "other"}}).usage
    assert salted.prompt_tokens_details.cached_tokens == 0


def test_a_stop_token_ends_the_text_and_has_none(client: openai.OpenAI) -> None:
    always = {"40": 100}
    free = ask(client, logit_bias=always, max_tokens=8)
    stopped = ask(client, logit_bias=always, max_tokens=8, extra_body={"stop_token_ids": [40]})
    assert (free.choices[0].finish_reason, free.usage.completion_tokens) == ("length", 8)
    assert len(free.choices[0].message.content) == 8
    assert (stopped.choices[0].finish_reason, stopped.usage.completion_tokens) == ("stop", 1)
    assert stopped.choices[0].message.content == ""
    later = {"stop_token_ids": [40], "min_tokens": 5}
    held = ask(client, logit_bias=always, max_tokens=8, extra_body=later)
    assert held.usage.completion_tokens == 6
