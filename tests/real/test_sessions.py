"""Draft sessions on a real model, in fp32: copies out of the archive never change a token.

Runs on the demo model, or on the folder in NINFER_NGRAM_TEST_WEIGHTS.
"""

from pathlib import Path

import numpy as np
import pytest

from services.engine.post import FromGateway
from services.gateway.prompt_parts import prompt_parts
from shared.messages import ArchiveStats, Cancel, DraftSession, Finished, OutputTokens, SessionFork
from shared.template import ChatTemplate
from tests.engine.local import MAX_TURNS, LocalEngine, Output, generate
from tests.engine.local_archive import LocalArchive
from tests.real.prompts import PROMPTS

pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]

OUTPUT_TOKENS = 40
WIDTH = 15
# none of these has its answer in the prompt, so whatever is copied twice comes from the session
ASKS = [p for p in PROMPTS if not p.copies and p.name != "list_continuation"]
LANES = 8


@pytest.fixture(scope="module")
def engine(ngram_model: Path) -> LocalEngine:
    return LocalEngine(ngram_model, slots=LANES, context=512)


@pytest.fixture(scope="module")
def prompts(ngram_model: Path, engine: LocalEngine) -> list[np.ndarray]:
    template = ChatTemplate.load(ngram_model, engine.tokenizer)
    return [template.encode(ask.messages) for ask in ASKS]


@pytest.fixture(scope="module")
def alone(engine: LocalEngine, prompts: list[np.ndarray]) -> list[list[int]]:
    """The greedy answers without any session or copy."""
    requests = [generate(f"r{i}", ids, output=OUTPUT_TOKENS) for i, ids in enumerate(prompts)]
    outputs = engine.run(requests, width=0)
    return [outputs[f"r{i}"].token_ids for i in range(len(prompts))]


@pytest.fixture
def archive() -> LocalArchive:
    return LocalArchive()


def session(
    engine: LocalEngine,
    prompt_ids: np.ndarray,
    name: str = "s",
    *,
    fork: SessionFork | None = None,
    reset: bool = False,
) -> DraftSession:
    tokenizer = engine.tokenizer
    return DraftSession(
        key=f"explicit:{name}".encode(),
        fork=fork,
        reset=reset,
        parts=prompt_parts(prompt_ids, tokenizer),
        thinking=tokenizer.thinking_ids,
    )


def ask(
    engine: LocalEngine,
    archive: LocalArchive,
    prompt_ids: np.ndarray,
    name: str = "s",
    *,
    fork: SessionFork | None = None,
    reset: bool = False,
    temperature: float = 0.0,
    seed: int = 11,
) -> Output:
    request = generate(
        "r",
        prompt_ids,
        output=OUTPUT_TOKENS,
        temperature=temperature,
        seed=seed,
        session=session(engine, prompt_ids, name, fork=fork, reset=reset),
    )
    return engine.run([request], width=WIDTH, archive=archive)["r"]


def copied(output: Output) -> int:
    assert isinstance(output.end, Finished)
    sources = output.end.stats.speculative.sources
    return sum(s.accepted_tokens for s in sources if s.kind == "session")


def stats(output: Output) -> ArchiveStats:
    assert isinstance(output.end, Finished)
    assert output.end.archive is not None
    return output.end.archive


def test_a_text_that_is_in_no_prompt_is_regenerated_out_of_the_session(
    engine: LocalEngine,
    archive: LocalArchive,
    prompts: list[np.ndarray],
    alone: list[list[int]],
) -> None:
    for index, prompt_ids in enumerate(prompts):
        name = f"s{index}"
        first = ask(engine, archive, prompt_ids, name)
        second = ask(engine, archive, prompt_ids, name)
        assert first.token_ids == second.token_ids == alone[index]
        assert copied(first) == 0
        assert copied(second) >= OUTPUT_TOKENS // 2
        assert stats(second).generation == stats(first).generation + 1


def test_isolated_forked_and_reset_sessions(
    engine: LocalEngine,
    archive: LocalArchive,
    prompts: list[np.ndarray],
    alone: list[list[int]],
) -> None:
    prompt_ids, expected = prompts[1], alone[1]
    generation = stats(ask(engine, archive, prompt_ids, "parent")).generation
    other = ask(engine, archive, prompt_ids, "other")
    fork = SessionFork(parent=b"explicit:parent", generation=generation)
    child = ask(engine, archive, prompt_ids, "child", fork=fork)
    reset = ask(engine, archive, prompt_ids, "parent", reset=True)
    kept = ask(engine, archive, prompt_ids, "child")
    stale = ask(engine, archive, prompt_ids, "late", fork=fork)
    for output in (other, child, reset, kept, stale):
        assert output.token_ids == expected
    assert copied(other) == copied(reset) == copied(stale) == 0
    assert copied(child) > 0
    assert copied(kept) > 0
    assert stats(stale).reason == "stale_generation"


def test_a_cancelled_request_leaves_nothing_and_its_retry_is_bound(
    engine: LocalEngine, archive: LocalArchive, prompts: list[np.ndarray], alone: list[list[int]]
) -> None:
    prompt_ids = prompts[2]
    first = ask(engine, archive, prompt_ids)
    running, post, limits = engine.engine(WIDTH, archive=archive)
    request = generate("r", prompt_ids, output=200, session=session(engine, prompt_ids))
    post.inbound.append(FromGateway(b"g", request))
    for _ in range(6):
        running.turn(limits)
    post.inbound.append(FromGateway(b"g", Cancel(request_id="r")))
    running.turn(limits)
    (cancelled,) = [m for m in post.sent if isinstance(m, Finished)]
    assert cancelled.archive is not None
    assert (cancelled.archive.published, cancelled.archive.reason) == (False, "cancelled")
    retry = ask(engine, archive, prompt_ids)
    assert stats(retry).generation == stats(first).generation + 1
    assert retry.token_ids == alone[2]
    assert copied(retry) > 0


def test_of_a_pair_with_one_name_one_binds_and_both_are_exact(
    engine: LocalEngine, archive: LocalArchive, prompts: list[np.ndarray], alone: list[list[int]]
) -> None:
    ask(engine, archive, prompts[3])
    named = session(engine, prompts[3])
    pair = [generate(n, prompts[3], output=OUTPUT_TOKENS, session=named) for n in ("a", "b")]
    outputs = engine.run(pair, width=WIDTH, archive=archive)
    assert outputs["a"].token_ids == outputs["b"].token_ids == alone[3]
    assert copied(outputs["a"]) > 0
    assert copied(outputs["b"]) == 0
    assert stats(outputs["b"]).reason == "busy"


def test_two_forks_run_beside_each_other(
    engine: LocalEngine, archive: LocalArchive, prompts: list[np.ndarray], alone: list[list[int]]
) -> None:
    generation = stats(ask(engine, archive, prompts[0], "parent")).generation
    fork = SessionFork(parent=b"explicit:parent", generation=generation)
    forks = [
        generate(
            name,
            prompts[0],
            output=OUTPUT_TOKENS,
            session=session(engine, prompts[0], name, fork=fork),
        )
        for name in ("left", "right")
    ]
    for output in engine.run(forks, width=WIDTH, archive=archive).values():
        assert output.token_ids == alone[0]
        assert copied(output) > 0
        assert stats(output).published


@pytest.mark.parametrize("lanes", range(1, LANES + 1))
def test_distinct_sessions_side_by_side_are_exact_on_every_lane(
    engine: LocalEngine,
    archive: LocalArchive,
    prompts: list[np.ndarray],
    alone: list[list[int]],
    lanes: int,
) -> None:
    requests = [
        generate(
            f"r{lane}",
            prompts[lane % len(prompts)],
            output=OUTPUT_TOKENS // 2,
            session=session(engine, prompts[lane % len(prompts)], f"s{lane}"),
        )
        for lane in range(lanes)
    ]
    for copies in (False, True):
        outputs = engine.run(requests, width=WIDTH, archive=archive)
        for lane in range(lanes):
            output = outputs[f"r{lane}"]
            assert output.token_ids == alone[lane % len(prompts)][: OUTPUT_TOKENS // 2]
            assert (copied(output) > 0) == copies
            assert stats(output).published


def test_every_bound_run_may_draw_otherwise_and_is_exact_for_its_seed(
    engine: LocalEngine, archive: LocalArchive, prompts: list[np.ndarray]
) -> None:
    """The gateway mixes the seed on each run (tests/gateway/test_draft_sessions.py)."""
    seen = set()
    for seed in (1, 2, 3):
        plain = generate("r", prompts[2], output=OUTPUT_TOKENS, temperature=0.7, seed=seed)
        expected = engine.run([plain], width=0)["r"].token_ids
        for _ in range(2):
            output = ask(engine, archive, prompts[2], temperature=0.7, seed=seed)
            assert output.token_ids == expected
        seen.add(tuple(expected))
    assert len(seen) == 3


def test_a_conversation_of_many_rounds_keeps_its_bytes_and_its_exactness(
    engine: LocalEngine, archive: LocalArchive, prompts: list[np.ndarray], alone: list[list[int]]
) -> None:
    """The same few requests over and over, one session, with pressure from a small archive."""
    small = LocalArchive(total=1 << 20, session=1 << 18)
    for turn in range(12):
        index = turn % 3
        output = ask(engine, small, prompts[index])
        assert output.token_ids == alone[index]
        assert stats(output).generation == turn + 1
        if turn == 2:
            settled = small.archive.store.total_bytes
        if turn > 2:
            assert copied(output) > 0
            assert small.archive.store.total_bytes == settled


def test_a_snapshot_that_arrives_during_the_answer_changes_nothing(
    engine: LocalEngine, archive: LocalArchive, prompts: list[np.ndarray], alone: list[list[int]]
) -> None:
    ask(engine, archive, prompts[1])
    archive.holding = True
    running, post, limits = engine.engine(WIDTH, archive=archive)
    named = session(engine, prompts[1])
    request = generate("r", prompts[1], output=OUTPUT_TOKENS, session=named)
    post.inbound.append(FromGateway(b"g", request))
    for turn in range(MAX_TURNS):
        if turn == 8:
            archive.let_go()
        running.turn(limits)
        if any(isinstance(message, Finished) for message in post.sent):
            break
    rounds = [m.token_ids for m in post.sent if isinstance(m, OutputTokens)]
    assert np.concatenate(rounds).tolist() == alone[1]
    (finished,) = [m for m in post.sent if isinstance(m, Finished)]
    assert {s.kind for s in finished.stats.speculative.sources} >= {"session"}
