"""Reused KV never changes a token, and nobody is given what is not theirs."""

from collections.abc import Sequence
from pathlib import Path

import msgspec
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from services.engine.post import FromGateway
from services.engine.prefix_blocks import BLOCK_TOKENS
from shared.messages import Cancel, Generate
from tests.engine.conversation import Conversation
from tests.engine.local import LocalEngine, generate

SLOTS = 2
TRUNK = (np.arange(150, dtype=np.int32) * 7) % 190 + 10


@pytest.fixture(scope="module")
def local(tiny_model: Path) -> LocalEngine:
    return LocalEngine(tiny_model, slots=SLOTS, context=512)


@pytest.fixture(scope="module")
def plain(tiny_model: Path) -> LocalEngine:
    """Another engine with KV of its own, to say what the tokens should be."""
    return LocalEngine(tiny_model, slots=1, context=512)


def joined(*parts: Sequence[int] | np.ndarray) -> np.ndarray:
    return np.concatenate([np.asarray(part, np.int32) for part in parts])


def alone(plain: LocalEngine, request: Generate) -> list[int]:
    return plain.run([request], width=0)[request.request_id].token_ids


def test_a_second_turn_computes_only_what_is_new(local: LocalEngine, plain: LocalEngine) -> None:
    talk = Conversation(local)
    ((first, _),) = talk.ask(generate("a", TRUNK, output=40))
    second = joined(TRUNK, first, [60, 61, 62, 63])
    ((tokens, stats),) = talk.ask(generate("b", second, output=30))
    # the first answer's last token was never processed, it was only drawn
    assert stats.cached_tokens == len(TRUNK) + 39
    assert stats.computed_prefill_tokens == len(second) - stats.cached_tokens
    assert stats.cached_from == "slot"
    assert tokens == alone(plain, generate("r", second, output=30))


def test_the_same_prompt_again_computes_one_token(local: LocalEngine) -> None:
    talk = Conversation(local)
    ((first, _),) = talk.ask(generate("a", TRUNK, output=20))
    ((again, stats),) = talk.ask(generate("b", TRUNK, output=20))
    assert (again, stats.cached_tokens) == (first, len(TRUNK) - 1)


def test_a_running_request_shares_its_prefix(local: LocalEngine, plain: LocalEngine) -> None:
    talk = Conversation(local)
    talk.post.inbound.append(FromGateway(b"g", generate("a", TRUNK, output=100)))
    for _ in range(8):
        talk.engine.turn(talk.limits)
    fork = joined(TRUNK[:120], [60, 61])
    ((tokens, stats),) = talk.ask(generate("b", fork, output=20))
    assert (stats.cached_tokens, stats.cached_from) == (120, "running")
    assert tokens == alone(plain, generate("r", fork, output=20))


def test_a_shared_beginning_does_not_evict_the_longer_conversation(local: LocalEngine) -> None:
    talk = Conversation(local)
    long = joined(TRUNK, TRUNK[::-1])
    ((first, _),) = talk.ask(generate("a", long, output=10))
    ((_, fork),) = talk.ask(generate("b", joined(TRUNK[:100], [77]), output=5))
    ((_, again),) = talk.ask(generate("c", joined(long, first), output=5))
    assert (fork.cached_tokens, again.cached_tokens) == (100, len(long) + 9)


def test_the_end_of_the_reuse_has_a_reason(local: LocalEngine) -> None:
    talk = Conversation(local)
    new = (np.arange(80, dtype=np.int32) * 11) % 180 + 15
    prompts = {
        "unknown": new,
        "complete": new,
        "appended": joined(new, [3], range(60, 90)),
        "changed": joined(new[:50], [9, 9, 9]),
    }
    for reason, prompt in prompts.items():
        ((tokens, stats),) = talk.ask(generate(reason, prompt, output=2))
        if reason == "complete":
            prompts["appended"][len(new)] = tokens[0]
        assert stats.cached_until == reason
    other = msgspec.structs.replace(generate("o", new, output=2), cache_salt="other")
    ((_, stats),) = talk.ask(other)
    assert (stats.cached_tokens, stats.cached_until) == (0, "other_salt")


def test_another_salt_finds_nothing(local: LocalEngine) -> None:
    talk = Conversation(local, host_blocks=16)
    talk.ask(generate("a", TRUNK, output=5), generate("b", TRUNK[::-1].copy(), output=5))
    salted = msgspec.structs.replace(generate("c", TRUNK, output=5), cache_salt="other")
    ((_, stats),) = talk.ask(salted)
    assert (stats.cached_tokens, stats.cached_from) == (0, "none")
    ((_, theirs),) = talk.ask(msgspec.structs.replace(salted, request_id="d"))
    assert theirs.cached_tokens == len(TRUNK) - 1


def test_the_host_tier_gives_back_what_slots_have_lost(
    local: LocalEngine, plain: LocalEngine
) -> None:
    talk = Conversation(local, host_blocks=32)
    prompts = [joined([30 + i], TRUNK) for i in range(4)]
    for i, prompt in enumerate(prompts):
        talk.ask(generate(f"a{i}", prompt, output=5))
    for i, prompt in enumerate(prompts[:2]):
        ((tokens, stats),) = talk.ask(generate(f"b{i}", prompt, output=15))
        assert stats.cached_from == "host"
        assert stats.cached_tokens == len(prompt) // BLOCK_TOKENS * BLOCK_TOKENS
        assert tokens == alone(plain, generate("r", prompt, output=15))


def test_without_a_host_tier_what_slots_have_lost_is_computed_again(local: LocalEngine) -> None:
    talk = Conversation(local)
    prompts = [joined([30 + i], TRUNK) for i in range(SLOTS + 1)]
    for i, prompt in enumerate(prompts):
        talk.ask(generate(f"a{i}", prompt, output=5))
    ((_, stats),) = talk.ask(generate("b", prompts[0], output=5))
    assert (stats.cached_tokens, stats.cached_from) == (0, "none")


@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    turns=st.lists(
        st.tuples(
            st.integers(0, 5),  # which earlier text it continues; 0 starts anew
            st.integers(1, 200),  # how much of it
            st.integers(10, 14),  # the token behind
            st.integers(1, 25),  # output tokens
            st.booleans(),  # cancelled after a few turns
        ),
        min_size=2,
        max_size=9,
    ),
    host_blocks=st.sampled_from([0, 2, 5, 64]),
    width=st.sampled_from([0, 15]),
)
def test_tokens_equal_those_of_a_fresh_engine(
    local: LocalEngine,
    plain: LocalEngine,
    turns: list[tuple[int, int, int, int, bool]],
    host_blocks: int,
    width: int,
) -> None:
    talk = Conversation(local, host_blocks=host_blocks, width=width)
    texts = [TRUNK]
    for index, (of, length, token, output, cancelled) in enumerate(turns):
        base = texts[-of] if 0 < of <= len(texts) else TRUNK
        prompt = joined(base[:length], [token])
        request = generate(f"r{index}", prompt, output=output)
        if cancelled:
            talk.post.inbound.append(FromGateway(b"g", request))
            for _ in range(4):
                talk.engine.turn(talk.limits)
            talk.post.inbound.append(FromGateway(b"g", Cancel(request_id=f"r{index}")))
            talk.engine.turn(talk.limits)
            talk.engine.check()
            continue
        ((tokens, stats),) = talk.ask(request)
        assert tokens == alone(plain, request)
        assert stats.cached_tokens + stats.computed_prefill_tokens == len(prompt)
        texts.append(joined(prompt, tokens))
