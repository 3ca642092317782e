"""Random schedules: requests come, are cancelled, stopped or too long, crowd the queue, and
gateways die, turn by turn. Each request ends once, nothing leaks, and every token is that of a loop
that computes one request, one token at a time, with no cache at all."""

from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from services.engine.post import FromGateway, GatewayGone
from shared.messages import Cancel, Failed, Finished, OutputTokens, Stop
from tests.engine.local import MAX_TURNS, LocalEngine, LocalPost, generate

CONTEXT = 128
LONGEST = 24  # tokens of an answer
ROWS = 2
TRUNK = np.arange(48, dtype=np.int32) * 7 % 190 + 10
# One repeats itself, so that copies are tried; two share a beginning; the last has no room.
PROMPTS = (
    np.tile(TRUNK[:12], 4),
    np.concatenate([TRUNK, TRUNK[:5] + 1]),
    np.concatenate([TRUNK, TRUNK[:9] + 2]),
    TRUNK[::-1].copy(),
    np.full(CONTEXT, 20, dtype=np.int32),
)
TOO_LONG = len(PROMPTS) - 1
GATEWAYS = (b"a", b"b")
Event = tuple[Any, ...]  # its kind and what belongs to it

submits = st.tuples(
    st.just("submit"), st.integers(0, TOO_LONG), st.integers(1, LONGEST), st.sampled_from(GATEWAYS)
)
cancels = st.tuples(st.just("cancel"), st.integers(0, 30))
stops = st.tuples(st.just("stop"), st.integers(0, 30), st.integers(1, 4))
bursts = st.tuples(st.just("burst"), st.integers(3, 24))
deaths = st.tuples(st.just("die"), st.sampled_from(GATEWAYS))
turns = st.tuples(st.just("turns"), st.integers(1, 6))
schedules = st.lists(
    st.one_of(submits, submits, turns, turns, cancels, stops, bursts, deaths),
    min_size=3,
    max_size=25,
)


@pytest.fixture(scope="module")
def local(tiny_model: Path) -> LocalEngine:
    return LocalEngine(tiny_model, slots=ROWS, context=CONTEXT)


@pytest.fixture(scope="module")
def naive(tiny_model: Path) -> Callable[[int], list[int]]:
    """The answer to a prompt, the whole text computed again for each token."""
    plain = LocalEngine(tiny_model, slots=1, context=CONTEXT)
    known: dict[int, list[int]] = {}

    def answer(which: int) -> list[int]:
        if which not in known:
            ids = PROMPTS[which]
            for _ in range(LONGEST):
                ids = np.append(ids, int(plain.model_logits(ids)[-1].argmax()))
            known[which] = ids[len(PROMPTS[which]) :].tolist()
        return known[which]

    return answer


class Schedule:
    """Plays events against a fresh engine, and keeps what each request should come to."""

    def __init__(self, local: LocalEngine, width: int, host_blocks: int) -> None:
        self.engine, self.post, self.limits = local.engine(
            width, policy="adaptive", chunk=32, host_blocks=host_blocks
        )
        self.asked: dict[str, tuple[int, int]] = {}  # name -> (prompt, output)
        self.homes: dict[str, bytes] = {}

    def play(self, event: Event) -> None:
        match event:
            case ("submit", prompt, output, gateway):
                self.submit(prompt, output, gateway)
            case ("burst", many):
                for n in range(many):
                    self.submit(n % TOO_LONG, 2, GATEWAYS[0])
            case ("cancel", index) if index < len(self.asked):
                self.tell(index, Cancel(request_id=f"r{index}"))
            case ("stop", index, tokens) if index < len(self.asked):
                self.tell(index, Stop(request_id=f"r{index}", output_tokens=tokens))
            case ("die", gateway):
                self.post.inbound.append(GatewayGone(gateway))
            case ("turns", many):
                for _ in range(many):
                    self.turn()

    def submit(self, prompt: int, output: int, gateway: bytes) -> None:
        name = f"r{len(self.asked)}"
        self.asked[name], self.homes[name] = (prompt, output), gateway
        request = generate(name, PROMPTS[prompt], output=output)
        self.post.inbound.append(FromGateway(gateway, request))

    def tell(self, index: int, message: Cancel | Stop) -> None:
        self.post.inbound.append(FromGateway(self.homes[f"r{index}"], message))

    def turn(self) -> None:
        self.engine.turn(self.limits)
        self.engine.check()

    def finish(self) -> None:
        for _ in range(MAX_TURNS):
            self.turn()
            if len(_ends(self.post)) == len(self.asked):
                return
        raise AssertionError("a request never ended")


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(schedule=schedules, width=st.sampled_from([0, 15]), host_blocks=st.sampled_from([0, 6]))
def test_whatever_happens_requests_end_once_with_the_tokens_of_a_naive_loop(
    local: LocalEngine,
    naive: Callable[[int], list[int]],
    schedule: list[Event],
    width: int,
    host_blocks: int,
) -> None:
    run = Schedule(local, width, host_blocks)
    for event in schedule:
        run.play(event)
    run.finish()
    tokens: dict[str, list[int]] = defaultdict(list)
    ended: set[str] = set()
    for message in run.post.sent:
        if isinstance(message, OutputTokens | Finished | Failed):
            assert message.request_id not in ended
        if isinstance(message, OutputTokens):
            tokens[message.request_id] += message.token_ids.tolist()
        elif isinstance(message, Finished | Failed):
            ended.add(message.request_id)
    for name, end in _ends(run.post).items():
        prompt, output = run.asked[name]
        if isinstance(end, Failed):
            assert end.code == "rate_limit_exceeded" or (
                prompt == TOO_LONG and end.code == "context_length_exceeded"
            )
            assert tokens[name] == []
            continue
        assert tokens[name] == naive(prompt)[: len(tokens[name])]
        assert len(tokens[name]) <= output
        if end.reason == "length":
            assert len(tokens[name]) == output


def _ends(post: LocalPost) -> dict[str, Finished | Failed]:
    return {m.request_id: m for m in post.sent if isinstance(m, Finished | Failed)}
