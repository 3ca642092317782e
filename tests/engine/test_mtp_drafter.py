"""Neural rounds in the engine: the text is the target's own, and what was drafted is counted."""

from pathlib import Path

import msgspec
import numpy as np
import pytest

from services.engine.drafting.settings import Policy
from services.engine.loop import Engine
from services.engine.models.tiny import write_tiny, write_tiny_mtp
from services.engine.planner import PlanLimits
from services.engine.post import FromGateway
from shared.messages import Cancel, Finished, Generate, Stop, ThinkingLimit
from tests.engine.chain_model import write_chain
from tests.engine.conversation import Conversation
from tests.engine.local import LocalEngine, LocalPost, Output, generate

K = 3


@pytest.fixture(scope="module")
def knowing(tmp_path_factory: pytest.TempPathFactory) -> LocalEngine:
    """Its drafts are always right."""
    return made(tmp_path_factory.mktemp("knowing"), noise=0.0)


@pytest.fixture(scope="module")
def guessing(tmp_path_factory: pytest.TempPathFactory) -> LocalEngine:
    """Its drafts are right for some tokens."""
    return made(tmp_path_factory.mktemp("guessing"), noise=0.12)


@pytest.fixture(scope="module")
def untrained(tmp_path_factory: pytest.TempPathFactory) -> LocalEngine:
    folder = tmp_path_factory.mktemp("untrained")
    write_tiny(folder)
    write_tiny_mtp(folder, seed=9)
    return LocalEngine(folder, slots=4, context=512, mtp=True)


def made(folder: Path, *, noise: float) -> LocalEngine:
    write_chain(folder, noise=noise, seed=4)
    return LocalEngine(folder, slots=4, context=512, mtp=True)


def prompt(seed: int = 0, count: int = 70) -> np.ndarray:
    return np.random.default_rng(seed).integers(3, 259, count).astype(np.int32)


def ask(
    local: LocalEngine,
    prompt_ids: np.ndarray,
    draft_tokens: int,
    *,
    width: int = 0,
    output: int = 60,
    temperature: float = 0.0,
    policy: Policy = "fixed",
    stop_ids: tuple[int, ...] = (),
) -> Output:
    request = generate("r", prompt_ids, output=output, temperature=temperature, stop_ids=stop_ids)
    return local.run([request], width=width, draft_tokens=draft_tokens, policy=policy)["r"]


@pytest.mark.parametrize("temperature", [0.0, 0.8], ids=["greedy", "seeded"])
@pytest.mark.parametrize("engine", ["knowing", "guessing", "untrained"])
@pytest.mark.parametrize("width", [0, 15, 63])
@pytest.mark.parametrize("policy", ["fixed", "adaptive"])
def test_neural_drafts_never_change_the_text(
    request: pytest.FixtureRequest, engine: str, temperature: float, width: int, policy: Policy
) -> None:
    local: LocalEngine = request.getfixturevalue(engine)
    for seed in range(2):
        plain = ask(local, prompt(seed), 0, temperature=temperature)
        for draft_tokens in (1, K, 15):
            drafted = ask(
                local,
                prompt(seed),
                draft_tokens,
                width=width,
                temperature=temperature,
                policy=policy,
            )
            assert drafted.token_ids == plain.token_ids
            assert drafted.stats.output_tokens == plain.stats.output_tokens


@pytest.mark.parametrize("draft_tokens", [1, 3, 7, 15])
def test_a_drafter_that_knows_saves_all_the_passes_it_can(
    knowing: LocalEngine, draft_tokens: int
) -> None:
    output = ask(knowing, prompt(), draft_tokens, output=61)
    # the first token comes out of the prompt's pass; the last round is as wide as is left
    assert output.stats.decode_passes == -(-60 // (draft_tokens + 1))
    assert output.neural.accepted_tokens == 60 - output.stats.decode_passes
    speculative = output.stats.speculative
    assert speculative.backend == "mtp"
    assert speculative.draft_window == draft_tokens
    assert speculative.rounds == output.neural.rounds
    assert sum(speculative.accepted_per_position) == speculative.accepted_tokens
    assert speculative.ngram_drafted_tokens == 0


def test_a_round_never_drafts_more_than_it_is_allowed(guessing: LocalEngine) -> None:
    output = ask(guessing, prompt(), K)
    assert 0 < output.neural.accepted_tokens < output.neural.drafted_tokens
    assert output.neural.drafted_tokens <= K * output.neural.rounds


@pytest.mark.parametrize("temperature", [0.0, 0.8], ids=["greedy", "seeded"])
@pytest.mark.parametrize("policy", ["fixed", "adaptive"])
def test_batched_rows_say_what_each_says_alone(
    guessing: LocalEngine, temperature: float, policy: Policy
) -> None:
    """Rows of different lengths, some of which copy, in rounds of mixed widths."""
    prompts = {f"r{n}": looped(n) if n % 2 else prompt(n, 30 + 17 * n) for n in range(4)}
    alone = {n: ask(guessing, p, 0, temperature=temperature).token_ids for n, p in prompts.items()}
    requests = [
        generate(name, ids, output=60, temperature=temperature) for name, ids in prompts.items()
    ]
    for width in (0, 15, 63):
        together = guessing.run(requests, width=width, draft_tokens=K, policy=policy, chunk=40)
        assert {name: out.token_ids for name, out in together.items()} == alone
        assert all(out.neural.rounds for out in together.values())


def looped(seed: int) -> np.ndarray:
    return np.tile(prompt(seed, 20), 4)


def test_after_copy_rounds_the_drafter_has_caught_up(knowing: LocalEngine) -> None:
    """A chain from a finite set of tokens runs into a loop, which is copied; a drafter that had
    missed those columns would see other keys and values than one that had computed them."""
    output = ask(knowing, prompt(), K, width=15, output=120)
    assert output.accepted > 0
    assert output.token_ids == ask(knowing, prompt(), 0, output=120).token_ids


@pytest.mark.parametrize("budget", [1, 2])
def test_the_last_output_token_is_never_drafted(knowing: LocalEngine, budget: int) -> None:
    output = ask(knowing, prompt(), K, width=63, output=budget)
    assert len(output.token_ids) == budget
    assert output.stats.speculative.drafted_tokens == 0


@pytest.mark.parametrize("offset", [0, 1, 2, 3])
def test_a_stop_token_inside_a_round_ends_the_output_there(
    knowing: LocalEngine, offset: int
) -> None:
    plain = ask(knowing, prompt(), 0).token_ids
    stop = plain[9 + offset]
    expected = plain[: plain.index(stop) + 1]
    output = ask(knowing, prompt(), K, stop_ids=(stop,))
    assert output.token_ids == expected
    assert isinstance(output.end, Finished)
    assert output.end.reason == "stop"
    speculative = output.stats.speculative
    assert speculative.accepted_tokens <= len(expected)


def test_a_thinking_budget_that_closes_inside_a_round_forces_its_end(
    knowing: LocalEngine,
) -> None:
    def thinking(draft_tokens: int) -> Output:
        request = with_thinking(generate("r", prompt(), output=40))
        return knowing.run([request], width=0, draft_tokens=draft_tokens)["r"]

    plain, drafted = thinking(0), thinking(K)
    assert drafted.token_ids == plain.token_ids
    assert plain.token_ids[10:12] == [7, 2]
    assert drafted.neural.accepted_tokens > 0


def with_thinking(request: Generate) -> Generate:
    limit = ThinkingLimit(budget_tokens=10, start_id=1, end_id=2, forced_ids=(7, 2), is_open=True)
    return msgspec.structs.replace(request, thinking=limit)


@pytest.mark.parametrize("host_blocks", [0, 64])
def test_the_next_turn_goes_on_with_the_drafters_history(
    knowing: LocalEngine, guessing: LocalEngine, host_blocks: int
) -> None:
    """The drafts behind a reused prefix are those behind a computed one."""
    for local in (knowing, guessing):
        conversation = Conversation(local, host_blocks=host_blocks, width=0, draft_tokens=K)
        first, _ = conversation.ask(generate("a", prompt(1, 150), output=30))[0]
        if host_blocks:  # others overwrite the slot
            others = [generate(f"o{n}", prompt(20 + n, 200), output=5) for n in range(6)]
            conversation.ask(*others)
        longer = np.concatenate([prompt(1, 150), np.array(first, np.int32), prompt(2, 9)])
        second, stats = conversation.ask(generate("b", longer, output=60))[0]
        fresh = ask(local, longer, K)
        assert second == fresh.token_ids
        assert stats.cached_tokens > 100
        assert stats.speculative == fresh.stats.speculative


def test_a_running_requests_prefix_is_copied_with_the_drafters_history(
    guessing: LocalEngine,
) -> None:
    engine, post, limits = guessing.engine(0, chunk=64, draft_tokens=K)
    text = prompt(3, 190)
    post.inbound.append(FromGateway(b"g", generate("a", text, output=80)))
    for _ in range(9):
        engine.turn(limits)
    post.inbound.append(FromGateway(b"g", generate("b", text, output=60)))
    ended = run_to_end(engine, post, limits, 2)
    fresh = ask(guessing, text, K)
    assert ended["b"].stats.cached_from == "running"
    assert ended["b"].stats.speculative == fresh.stats.speculative


def run_to_end(
    engine: Engine, post: LocalPost, limits: PlanLimits, count: int
) -> dict[str, Finished]:
    for _ in range(500):
        engine.turn(limits)
        engine.check()
        ends = {m.request_id: m for m in post.sent if isinstance(m, Finished)}
        if len(ends) == count:
            return ends
    raise AssertionError("the engine did not finish")


def test_cancelled_and_stopped_requests_leave_nothing_behind(guessing: LocalEngine) -> None:
    engine, post, limits = guessing.engine(15, chunk=64, draft_tokens=K)
    for n in range(8):  # four run, four wait
        post.inbound.append(FromGateway(b"g", generate(f"r{n}", prompt(n, 150), output=60)))
    for turn in range(40):
        engine.turn(limits)
        engine.check()
        if turn % 5 == 4:
            post.inbound.append(FromGateway(b"g", Cancel(request_id=f"r{turn // 5}")))
        if turn == 12:
            post.inbound.append(FromGateway(b"g", Stop(request_id="r4", output_tokens=3)))
    ended = run_to_end(engine, post, limits, 8)
    assert len(ended) == 8
    # what the slots hold is still right for whoever goes on from there
    for n in range(4):
        again = Conversation(guessing, width=0, draft_tokens=K)
        assert again.ask(generate("x", prompt(n, 150), output=60))[0][0] == (
            ask(guessing, prompt(n, 150), 0).token_ids
        )


def test_a_request_at_the_contexts_end_stops_there(knowing: LocalEngine) -> None:
    text = prompt(5, 480)
    plain, drafted = ask(knowing, text, 0, output=100), ask(knowing, text, 15, output=100)
    assert drafted.token_ids == plain.token_ids
    assert isinstance(drafted.end, Finished)
    assert drafted.end.reason == "context"


def test_an_untrained_drafter_is_not_asked_any_more_after_32_rounds(
    untrained: LocalEngine,
) -> None:
    output = ask(untrained, prompt(), K, output=300, policy="adaptive")
    speculative = output.stats.speculative
    assert output.token_ids == ask(untrained, prompt(), 0, output=300).token_ids
    assert output.neural.rounds <= 32
    assert speculative.fallback_steps > 200
