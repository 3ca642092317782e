"""The engine's promises under any schedule, on a tiny random model: one terminal message each, no
token after it, slots given back, and the same tokens as alone."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from services.engine.post import FromGateway, GatewayGone
from services.engine.runner import ModelFault
from shared.messages import Cancel, Failed, Finished, Stop
from tests.engine.local import MAX_TURNS, LocalEngine, generate

PROMPTS = [np.arange(5 + 40 * i, 45 + 60 * i, dtype=np.int32) % 200 + 10 for i in range(4)]


@pytest.fixture(scope="module")
def local(tiny_model: Path) -> LocalEngine:
    return LocalEngine(tiny_model, slots=2, context=256)


def ends(sent: list[object]) -> dict[str, list[Finished | Failed]]:
    found: dict[str, list[Finished | Failed]] = {}
    for message in sent:
        if isinstance(message, Finished | Failed):
            found.setdefault(message.request_id, []).append(message)
    return found


@settings(
    max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    arrivals=st.lists(st.tuples(st.integers(0, 12), st.integers(1, 30)), min_size=1, max_size=8),
    cancels=st.dictionaries(st.integers(0, 7), st.integers(0, 20), max_size=4),
    stops=st.dictionaries(st.integers(0, 7), st.integers(0, 20), max_size=2),
    width=st.sampled_from([0, 15]),
)
def test_every_request_ends_once_whatever_is_cancelled(
    local: LocalEngine,
    arrivals: list[tuple[int, int]],
    cancels: dict[int, int],
    stops: dict[int, int],
    width: int,
) -> None:
    engine, post, limits = local.engine(width, chunk=32)
    for turn in range(MAX_TURNS):
        for index, (at, output) in enumerate(arrivals):
            if at == turn:
                request = generate(f"r{index}", PROMPTS[index % 4], output=output)
                post.inbound.append(FromGateway(b"g", request))
            if cancels.get(index) == turn:
                post.inbound.append(FromGateway(b"g", Cancel(request_id=f"r{index}")))
            if stops.get(index) == turn:
                stop = Stop(request_id=f"r{index}", output_tokens=1)
                post.inbound.append(FromGateway(b"g", stop))
        engine.turn(limits)
        engine.check()
        if turn > 20 and len(ends(post.sent)) == len(arrivals):
            break
    assert {name: len(found) for name, found in ends(post.sent).items()} == {
        f"r{index}": 1 for index in range(len(arrivals))
    }
    done: set[str] = set()
    for message in post.sent:
        assert getattr(message, "request_id", None) not in done
        if isinstance(message, Finished | Failed):
            done.add(message.request_id)


@pytest.mark.parametrize("chunk", [16, 33, 512])
def test_tokens_do_not_depend_on_the_chunks_of_the_prompt(local: LocalEngine, chunk: int) -> None:
    request = generate("r", PROMPTS[3], output=20)
    whole = local.run([request], width=0)["r"].token_ids
    assert local.run([request], width=15, chunk=chunk)["r"].token_ids == whole


def test_a_gateway_that_is_gone_frees_all_its_requests(local: LocalEngine) -> None:
    engine, post, limits = local.engine(0)
    for index in range(4):
        gateway = b"gone" if index % 2 else b"here"
        post.inbound.append(FromGateway(gateway, generate(f"r{index}", PROMPTS[index], output=50)))
    engine.turn(limits)
    post.inbound.append(GatewayGone(b"gone"))
    engine.turn(limits)
    engine.check()
    assert set(ends(post.sent)) == {"r1", "r3"}


def test_requests_beyond_rows_and_queue_are_refused_and_the_others_go_on(
    local: LocalEngine,
) -> None:
    engine, post, limits = local.engine(0)
    for index in range(2 + 16 + 1):  # rows, queue and one more
        post.inbound.append(FromGateway(b"g", generate(f"r{index}", PROMPTS[0], output=2)))
    engine.turn(limits)
    (refused,) = [m for m in post.sent if isinstance(m, Failed)]
    assert (refused.request_id, refused.code) == ("r18", "rate_limit_exceeded")


def test_a_prompt_that_fills_the_context_is_refused(local: LocalEngine) -> None:
    request = generate("r", np.full(256, 20, dtype=np.int32))
    end = local.run([request], width=0)["r"].end
    assert isinstance(end, Failed)
    assert end.code == "context_length_exceeded"


def test_the_end_of_the_context_ends_the_output_exactly_there(local: LocalEngine) -> None:
    request = generate("r", PROMPTS[0], output=10_000)
    output = local.run([request], width=15)["r"]
    assert isinstance(output.end, Finished)
    assert output.end.reason == "context"
    assert len(PROMPTS[0]) + len(output.token_ids) == 256


def test_a_request_that_waits_too_long_fails_with_a_deadline(local: LocalEngine) -> None:
    engine, post, limits = local.engine(0)
    for index in range(2):
        post.inbound.append(FromGateway(b"g", generate(f"r{index}", PROMPTS[0], output=100)))
    late = generate("late", PROMPTS[0], queue_deadline_s=0.0)
    engine.turn(limits)
    post.inbound.append(FromGateway(b"g", late))
    engine.turn(limits)
    (end,) = ends(post.sent)["late"]
    assert isinstance(end, Failed)
    assert end.code == "deadline_passed"


def test_a_failing_model_fails_its_rows_and_stops_the_engine_after_three(
    local: LocalEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, post, limits = local.engine(0)

    def fault(*_: object) -> None:
        raise ModelFault("out of memory")

    monkeypatch.setattr(local.runner, "launch", fault)
    for index in range(2):
        post.inbound.append(FromGateway(b"g", generate(f"r{index}", PROMPTS[0])))
        engine.turn(limits)
        engine.check()
        (end,) = ends(post.sent)[f"r{index}"]
        assert isinstance(end, Failed)
    post.inbound.append(FromGateway(b"g", generate("r2", PROMPTS[0])))
    with pytest.raises(ModelFault):
        engine.turn(limits)
    assert "r2" in ends(post.sent)


def test_shutting_down_ends_open_requests(local: LocalEngine) -> None:
    engine, post, limits = local.engine(0)
    for index in range(3):
        post.inbound.append(FromGateway(b"g", generate(f"r{index}", PROMPTS[0], output=100)))
    engine.turn(limits)
    engine.shut_down()
    engine.check()
    assert {e.reason for (e,) in ends(post.sent).values() if isinstance(e, Finished)} == {
        "cancelled"
    }
    assert len(ends(post.sent)) == 3
