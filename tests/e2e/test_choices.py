"""Several choices from a real engine: one prefill, and each choice's own draws."""

import json
from typing import Any

import openai
import pytest

from tests.e2e.conftest import Server, wait_for

pytestmark = pytest.mark.e2e
PROMPT: list[Any] = [{"role": "user", "content": "Tell me about rivers, bridges and boats. " * 6}]


@pytest.fixture
def client(server: Server) -> openai.OpenAI:
    return openai.OpenAI(base_url=server.url, api_key="unused", max_retries=0)


def ask(client: openai.OpenAI, **options: Any) -> Any:
    model = client.models.list().data[0].id
    return client.chat.completions.create(
        model=model, messages=PROMPT, **({"max_tokens": 24, "temperature": 1.0} | options)
    )


def texts_of(answer: Any) -> list[str]:
    return [choice.message.content for choice in answer.choices]


def logged(server: Server, request_id: str) -> dict[str, Any]:
    def find() -> dict[str, Any] | None:
        lines = [json.loads(line) for line in server.log.read_text().splitlines()]
        done = [line for line in lines if line["event"] == "request_done"]
        return next((d for d in done if d["request"]["request_id"] == request_id), None)

    found: dict[str, Any] = wait_for(find)
    return found


@pytest.mark.parametrize("copies", [True, False])
def test_each_choice_is_the_answer_to_its_seed(client: openai.OpenAI, copies: bool) -> None:
    body = {"ninfer": {"speculation": copies, "cache_salt": f"seeds {copies}"}}
    several = texts_of(ask(client, n=4, seed=100, extra_body=body))
    alone = [texts_of(ask(client, seed=100 + i, extra_body=body))[0] for i in range(4)]
    assert several == alone
    assert len(set(several)) == 4


def test_greedy_choices_are_equal_and_unseeded_ones_are_not(client: openai.OpenAI) -> None:
    assert len(set(texts_of(ask(client, n=4, temperature=0)))) == 1
    assert len(set(texts_of(ask(client, n=4)))) == 4


def test_the_prompt_is_computed_once(client: openai.OpenAI, server: Server) -> None:
    """Four choices on two rows: two of them begin when others have ended."""
    answer = ask(client, n=4, seed=1, extra_body={"ninfer": {"cache_salt": "fresh"}})
    prompt = answer.usage.prompt_tokens
    assert prompt > 100
    assert answer.usage.prompt_tokens_details.cached_tokens == 0
    assert answer.usage.completion_tokens == 4 * 24
    result = logged(server, answer.id)["result"]
    assert (result["prompt_tokens"], result["prefix_cache_hit_tokens"]) == (prompt, 0)
    # all of it for the first, the last token for each of the others
    assert result["computed_prefill_tokens"] == prompt + 3


def test_a_stream_has_the_same_choices(client: openai.OpenAI) -> None:
    texts = dict.fromkeys(range(3), "")
    for chunk in ask(client, n=3, seed=5, stream=True):
        (choice,) = chunk.choices
        texts[choice.index] += choice.delta.content or ""
    assert list(texts.values()) == texts_of(ask(client, n=3, seed=5))


def test_leaving_a_stream_frees_every_row(client: openai.OpenAI, server: Server) -> None:
    with ask(client, n=4, stream=True, max_tokens=1500) as stream:
        next(chunk for chunk in stream if chunk.choices[0].delta.content)
    wait_for(server.is_idle)
    assert len(texts_of(ask(client, n=4))) == 4
