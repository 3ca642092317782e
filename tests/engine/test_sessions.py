"""Sessions in the engine, on a tiny random model: what is bound, published and copied, what never
changes a token, and what no archive can delay."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from services.engine import sessions as sessions_module
from services.engine.archive_link import ArchiveAbsent
from services.engine.post import ArchiveAnswer, FromGateway
from services.engine.retained import output_parts
from shared.messages import (
    ArchiveStats,
    Cancel,
    DraftSession,
    Failed,
    Finished,
    Publish,
    SessionFork,
    SpanKind,
    Stop,
)
from tests.engine.local import MAX_TURNS, LocalEngine, LocalPost, Output, generate
from tests.engine.local_archive import LocalArchive

PROMPT = np.arange(40, 100, dtype=np.int32)
KEY = b"explicit:k"


@pytest.fixture(scope="module")
def local(tiny_model: Path) -> LocalEngine:
    return LocalEngine(tiny_model, slots=2, context=512)


@pytest.fixture
def archive() -> LocalArchive:
    return LocalArchive()


def session(
    key: bytes = KEY,
    *,
    fork: SessionFork | None = None,
    reset: bool = False,
    parts: tuple[int, ...] = (0, 60, 1),
    thinking: tuple[int, int] | None = None,
) -> DraftSession:
    return DraftSession(
        key=key, fork=fork, reset=reset, parts=np.array(parts, np.int32), thinking=thinking
    )


def run(
    local: LocalEngine, archive: LocalArchive | None, of: DraftSession | None, **options: object
) -> Output:
    request = generate("r", PROMPT, session=of, **options)  # type: ignore[arg-type]
    return local.run([request], width=15, archive=archive)["r"]


def stats(output: Output) -> ArchiveStats:
    assert isinstance(output.end, Finished)
    assert output.end.archive is not None
    return output.end.archive


def copied_from_session(output: Output) -> int:
    assert isinstance(output.end, Finished)
    sources = output.end.stats.speculative.sources
    return sum(s.accepted_tokens for s in sources if s.kind == "session")


def test_what_a_first_request_published_a_second_copies_without_having_it(
    local: LocalEngine, archive: LocalArchive
) -> None:
    """The same tokens are generated; the second time they come out of the archive."""
    first = run(local, archive, session(), output=200)
    assert (stats(first).bound, stats(first).published, stats(first).generation) == (True, True, 1)
    assert copied_from_session(first) == 0
    second = run(local, archive, session(), output=200)
    assert second.token_ids == first.token_ids == run(local, None, None, output=200).token_ids
    assert copied_from_session(second) > 100
    assert stats(second).generation == 2
    assert stats(second).sources == 2  # the prompt's part and the output, both deduplicated


def test_other_sessions_copy_nothing_of_it(local: LocalEngine, archive: LocalArchive) -> None:
    run(local, archive, session(), output=100)
    other = run(local, archive, session(b"explicit:other"), output=100)
    assert copied_from_session(other) == 0


def test_a_fork_copies_its_parents_past(local: LocalEngine, archive: LocalArchive) -> None:
    run(local, archive, session(), output=100)
    fork = SessionFork(parent=KEY, generation=1)
    child = run(local, archive, session(b"explicit:child", fork=fork), output=100)
    assert copied_from_session(child) > 50
    stale = run(local, archive, session(b"explicit:late", fork=fork), output=100)
    assert copied_from_session(stale) > 50  # the child's publication is not the parent's
    run(local, archive, session(), output=10)
    refused = run(local, archive, session(b"explicit:later", fork=fork), output=100)
    assert (stats(refused).bound, stats(refused).reason) == (False, "stale_generation")
    assert refused.token_ids == child.token_ids


def test_a_reset_begins_with_nothing(local: LocalEngine, archive: LocalArchive) -> None:
    run(local, archive, session(), output=100)
    again = run(local, archive, session(reset=True), output=100)
    assert copied_from_session(again) == 0
    assert stats(again).generation == 2


def test_two_requests_of_one_session_one_is_bound_both_are_right(
    local: LocalEngine, archive: LocalArchive
) -> None:
    alone = run(local, None, None, output=60).token_ids
    pair = [generate(name, PROMPT, output=60, session=session()) for name in ("a", "b")]
    outputs = local.run(pair, width=15, archive=archive)
    assert outputs["a"].token_ids == outputs["b"].token_ids == alone
    assert stats(outputs["a"]).published
    assert (stats(outputs["b"]).bound, stats(outputs["b"]).reason) == (False, "busy")


def test_a_request_that_waits_for_a_slot_binds_when_it_gets_one(
    local: LocalEngine, archive: LocalArchive
) -> None:
    """So a conversation's next request, queued behind the last, sees what that published."""
    others = [generate(f"o{i}", PROMPT, output=5, session=session(b"%d" % i)) for i in range(2)]
    waiting = generate("late", PROMPT, output=60, session=session(b"0"))
    outputs = local.run([*others, waiting], width=15, archive=archive)
    assert stats(outputs["late"]).generation == 3
    assert stats(outputs["late"]).bound


def test_reasoning_and_answer_are_kept_apart(local: LocalEngine, archive: LocalArchive) -> None:
    plain = run(local, None, None, output=60)
    closing = plain.token_ids[30]
    thinking = (int(PROMPT[-2]), closing)
    run(local, archive, session(thinking=thinking), output=60)
    kinds = {entry.kind for s in archive.archive.store.sessions for entry in s}
    assert kinds == {SpanKind.TEXT, SpanKind.REASONING, SpanKind.GENERATED}


@pytest.mark.parametrize(
    ("prompt", "output", "expected"),
    [
        ([5, 5, 5], [1, 7, 2, 8, 3], [(3, 7, 0), (7, 8, 2)]),  # opened within four tokens
        ([5, 5, 5], [1, 1, 1, 1, 7, 8], [(3, 9, 2)]),  # too late to be reasoning
        ([5, 7, 5], [1, 8, 3], [(3, 5, 0), (5, 6, 2)]),  # opened by the prompt
        ([7, 8, 5], [1, 2, 3], [(3, 6, 2)]),  # and closed by it: thinking is off
        ([5, 7, 5], [1, 2, 3], [(3, 6, 0)]),  # never closed
        ([5, 7, 5], [1, 8], [(3, 5, 0)]),
    ],
)
def test_where_reasoning_ends(
    prompt: list[int], output: list[int], expected: list[tuple[int, int, int]]
) -> None:
    tokens = np.array(prompt + output, np.int32)
    parts = output_parts(tokens, len(prompt), (7, 8))
    assert [tuple(part) for part in parts.reshape(-1, 3).tolist()] == expected
    assert len(output_parts(tokens, len(prompt), None)) == 3


# -- what the archive does wrong ---------------------------------------------------------------


def test_a_snapshot_that_comes_late_is_used_from_then_on(
    local: LocalEngine, archive: LocalArchive
) -> None:
    whole = run(local, archive, session(), output=300)
    archive.holding = True
    engine, post, limits = local.engine(15, archive=archive)
    request = generate("r", PROMPT, output=300, session=session())
    post.inbound.append(FromGateway(b"g", request))
    for _ in range(4):
        engine.turn(limits)
    assert len(post.sent) >= 3, "it did not wait for its snapshot"
    archive.let_go()
    output = _finish(engine.turn, post, limits)
    assert output.token_ids == whole.token_ids
    assert copied_from_session(output) > 50


def test_an_archive_that_never_answers_costs_the_publication_after_a_deadline(
    local: LocalEngine, archive: LocalArchive, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sessions_module, "PUBLISH_WAIT_S", 0.01)
    archive.deaf = True
    output = run(local, archive, session(), output=20)
    found = stats(output)
    assert (found.bound, found.published, found.reason) == (False, False, "publish_late")
    assert output.token_ids == run(local, None, None, output=20).token_ids


def test_an_absent_archive_is_named_and_nothing_is_waited_for(
    local: LocalEngine, archive: LocalArchive
) -> None:
    archive.deaf = True
    engine, post, limits = local.engine(15, archive=archive)
    request = generate("r", PROMPT, output=20, session=session())
    post.inbound.append(FromGateway(b"g", request))
    engine.turn(limits)
    post.inbound.append(ArchiveAnswer(ArchiveAbsent("r")))
    output = _finish(engine.turn, post, limits)
    assert stats(output).reason == "archive_absent"
    assert not any(isinstance(message, Publish) for message in archive.sent)


def test_a_revoked_request_copies_and_publishes_nothing_more(
    local: LocalEngine, archive: LocalArchive
) -> None:
    whole = run(local, archive, session(), output=300)
    engine, post, limits = local.engine(15, archive=archive)
    request = generate("old", PROMPT, output=300, session=session())
    post.inbound.append(FromGateway(b"g", request))
    engine.turn(limits)
    engine.turn(limits)
    reset = generate("new", PROMPT, output=1, session=session(reset=True))
    post.inbound.append(FromGateway(b"g", reset))
    while not any(isinstance(m, Finished) and m.request_id == "new" for m in post.sent):
        engine.turn(limits)
    copied = sum(m.copied for m in post.sent if getattr(m, "request_id", "") == "old")
    output = _finish(engine.turn, post, limits, "old")
    assert copied_from_session(output) <= copied + 15
    assert output.token_ids == whole.token_ids
    assert (stats(output).published, stats(output).reason) == (False, "revoked")
    (only,) = archive.archive.store.sessions
    assert only.generation == 2  # the reset request's


def test_a_stop_string_publishes_only_what_counts(
    local: LocalEngine, archive: LocalArchive
) -> None:
    engine, post, limits = local.engine(15, archive=archive)
    request = generate("r", PROMPT, output=100, session=session(parts=()))
    post.inbound.append(FromGateway(b"g", request))
    for _ in range(12):
        engine.turn(limits)
    post.inbound.append(FromGateway(b"g", Stop(request_id="r", output_tokens=6)))
    output = _finish(engine.turn, post, limits)
    assert stats(output).published
    (entry,) = next(iter(archive.archive.store.sessions))
    assert entry.span.tokens.tolist() == output.token_ids[:6]


@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    arrivals=st.lists(
        st.tuples(
            st.integers(0, 12),  # turn
            st.integers(1, 25),  # output
            st.integers(0, 2),  # which session
            st.sampled_from(["", "", "", "reset", "fork"]),
        ),
        min_size=1,
        max_size=8,
    ),
    cancels=st.dictionaries(st.integers(0, 7), st.integers(0, 20), max_size=4),
    holds=st.sets(st.integers(0, 20), max_size=8),
    deaf_from=st.integers(0, 60),
)
def test_whatever_the_archive_does_every_request_ends_once_with_its_own_tokens(
    local: LocalEngine,
    arrivals: list[tuple[int, int, int, str]],
    cancels: dict[int, int],
    holds: set[int],
    deaf_from: int,
) -> None:
    archive = LocalArchive()
    engine, post, limits = local.engine(15, archive=archive)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sessions_module, "PUBLISH_WAIT_S", 0.0)
        for turn in range(MAX_TURNS):
            for index, (at, output, which, how) in enumerate(arrivals):
                if at == turn:
                    fork = SessionFork(parent=b"0", generation=1) if how == "fork" else None
                    of = session(b"%d" % which, fork=fork, reset=how == "reset")
                    request = generate(f"r{index}", PROMPT, output=output, session=of)
                    post.inbound.append(FromGateway(b"g", request))
                if cancels.get(index) == turn:
                    post.inbound.append(FromGateway(b"g", Cancel(request_id=f"r{index}")))
            archive.deaf = turn >= deaf_from
            if turn in holds:
                archive.holding = True
            elif archive.holding:
                archive.let_go()
            engine.turn(limits)
            engine.check()
            ended = [m for m in post.sent if isinstance(m, Finished | Failed)]
            if turn > 25 and len(ended) == len(arrivals):
                break
    assert sorted(m.request_id for m in ended) == sorted(f"r{i}" for i in range(len(arrivals)))
    expected = run(local, None, None, output=25).token_ids
    for index, _ in enumerate(arrivals):
        tokens = _tokens(post, f"r{index}")
        assert tokens == expected[: len(tokens)]
    generations = [m.archive.generation for m in ended if isinstance(m, Finished) and m.archive]
    published = [number for number in generations if number]
    assert len(set(published)) == len(published)


def _tokens(post: LocalPost, request_id: str) -> list[int]:
    return [
        token
        for message in post.sent
        if getattr(message, "request_id", None) == request_id and hasattr(message, "token_ids")
        for token in message.token_ids.tolist()
    ]


def _finish(
    turn: Callable[..., None], post: LocalPost, limits: object, request_id: str = "r"
) -> Output:
    for _ in range(MAX_TURNS):
        for message in post.sent:
            if isinstance(message, Finished | Failed) and message.request_id == request_id:
                return Output(_tokens(post, request_id), message)
        turn(limits)
    raise AssertionError("it did not finish")
