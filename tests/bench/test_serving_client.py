"""What the bench understands of other servers, and what it asks them."""

import json

import pytest

from bench.serving.client import ChatClient, Refused
from bench.serving.workloads import SAMPLED, WORKLOADS, Turn
from tests.bench.fake_server import Chunks, fake_server, llama_cpp, vllm

PLAIN = Turn("reasoning", [{"role": "user", "content": "hi"}], SAMPLED)
HELD = Turn("edits", [{"role": "user", "content": "hi"}], held='a "b"\n')


def ask(owner: str, chunks: Chunks, turn: Turn, **server: int) -> tuple[object, dict[str, object]]:
    with fake_server(owner, chunks, **server) as fake:
        client = ChatClient(f"{fake.url}/v1/", key="k")
        answer = client.ask(turn, output_tokens=9, salt="s", ninfer={"ngram_draft_tokens": 0})
        assert fake.keys == ["Bearer k"]
        return answer, fake.bodies[0]


def test_llama_cpps_counts_and_timings_are_used() -> None:
    answer, body = ask("llamacpp", llama_cpp("one", " two", " three"), PLAIN)
    assert (answer.text, answer.finish_reason) == ("one two three", "length")
    assert (answer.prompt_tokens, answer.reused_tokens, answer.computed_tokens) == (30, 20, 10)
    assert answer.output_tokens == 3
    assert answer.timings["draft_n_accepted"] == 4
    assert answer.decode_tok_s == pytest.approx(2 / answer.decode_s)
    assert "ninfer" not in body
    assert body["stream_options"] == {"include_usage": True}
    assert (body["max_tokens"], body["seed"], body["temperature"]) == (9, 7, 1.0)


def test_counts_that_only_the_timings_have_are_enough() -> None:
    chunks = llama_cpp("one", " two")
    del chunks[-1]["usage"]
    answer, _ = ask("llamacpp", chunks, PLAIN)
    assert (answer.prompt_tokens, answer.computed_tokens, answer.output_tokens) == (30, 10, 2)


def test_what_vllm_does_not_tell_stays_unknown() -> None:
    answer, body = ask("vllm", vllm("one", " two"), PLAIN)
    assert (answer.prompt_tokens, answer.output_tokens) == (30, 2)
    assert answer.reused_tokens is answer.computed_tokens is None
    assert answer.timings == answer.speculative == {}
    assert body["cache_salt"] == "s"


def test_each_server_is_held_to_a_text_in_its_own_words() -> None:
    _, ours = ask("ninfer", llama_cpp("x"), HELD)
    assert ours["guided_choice"] == ['a "b"\n']
    assert ours["ninfer"] == {"cache_salt": "s", "ngram_draft_tokens": 0}
    _, theirs = ask("vllm", vllm("x"), HELD)
    assert theirs["structured_outputs"] == {"choice": ['a "b"\n']}
    _, theirs = ask("llamacpp", llama_cpp("x"), HELD)
    assert theirs["grammar"] == r'root ::= "a \"b\"\n"'
    _, unknown = ask("someone", vllm("x"), HELD)
    assert not {"guided_choice", "structured_outputs", "grammar"} & set(unknown)


def test_vllm_is_told_to_continue_a_prefilled_answer() -> None:
    (turn,) = WORKLOADS["raw-copy"]("", free=False)
    _, body = ask("vllm", vllm("x"), turn)
    assert body["continue_final_message"] is True
    assert body["add_generation_prompt"] is False


def test_a_prefilled_beginning_that_is_said_again_is_not_part_of_the_answer() -> None:
    messages = [{"role": "user", "content": "go on"}, {"role": "assistant", "content": "one"}]
    answer, _ = ask("llamacpp", llama_cpp("one", " two"), Turn("copy", messages))
    assert answer.text == " two"
    answer, _ = ask("vllm", vllm(" two", " one"), Turn("copy", messages))
    assert answer.text == " two one"


def test_reasoning_counts_as_text() -> None:
    chunks = llama_cpp("answer")
    chunks.insert(1, {"choices": [{"index": 0, "delta": {"reasoning_content": "think "}}]})
    answer, _ = ask("llamacpp", chunks, PLAIN)
    assert answer.text == "think answer"


def test_a_refusal_is_one_sentence() -> None:
    with pytest.raises(Refused, match=r"answered 400: no room left$"):
        ask("vllm", [], PLAIN, status=400)


def test_an_error_inside_the_stream_is_a_refusal() -> None:
    broken = [*llama_cpp("one")[:2], {"error": {"message": "out of memory"}}]
    with pytest.raises(Refused, match="inside the stream: out of memory"):
        ask("llamacpp", broken, PLAIN)


def test_a_stream_without_an_end_is_a_refusal() -> None:
    with pytest.raises(Refused, match="without a finish reason"):
        ask("llamacpp", llama_cpp("one")[:2], PLAIN)


def test_nobody_there_and_no_such_model_are_refusals() -> None:
    with fake_server("vllm", []) as fake:
        url = fake.url
        with pytest.raises(Refused, match="has no model mine"):
            ChatClient(url, model="mine")
    with pytest.raises(Refused, match="does not answer"):
        ChatClient(url)


def test_the_card_says_the_context() -> None:
    with fake_server("llamacpp", []) as fake:
        card = ChatClient(fake.url).card
    assert (card.kind, card.context, card.exact) == ("llamacpp", 4096, None)
    assert json.dumps(card.model) == '"other"'
