"""Messages to the archive and back, without sockets."""

import numpy as np
import pytest

from services.archive.desk import BadMessage, Desk
from shared.messages import (
    Attach,
    Attached,
    Bind,
    Bound,
    Deleted,
    DeleteSessions,
    Forget,
    ListSessions,
    NotPublished,
    Publish,
    Published,
    Release,
    Revoked,
    SessionFork,
    Sessions,
    Unbound,
)
from shared.session_names import public_id, split_ids
from tests.archive.making import make_archive

KEY = b"explicit:\xff key"
NONE_KNOWN = np.empty(0, np.uint64)


def ids(*values: int) -> np.ndarray:
    return np.array(values, np.int32)


@pytest.fixture
def desk() -> Desk:
    made = Desk(make_archive())
    made.from_engine(Attach(engine_id="e", generation_floor=0, bindings=()))
    return made


def bind(binding: str = "r", key: bytes = KEY, **changes: object) -> Bind:
    fields: dict[str, object] = {
        "engine_id": "e",
        "binding": binding,
        "key": key,
        "fork": None,
        "reset": False,
        "known": NONE_KNOWN,
        **changes,
    }
    return Bind(**fields)  # type: ignore[arg-type]


def publish(binding: str = "r", *, parts: tuple[int, ...] = (0, 5, 3)) -> Publish:
    return Publish(binding=binding, tokens=ids(1, 2, 3, 4, 5, -1, 7, 8), parts=ids(*parts))


def test_a_whole_request(desk: Desk) -> None:
    (bound,) = desk.from_engine(bind())
    assert isinstance(bound.message, Bound)
    assert bound.message.generation == 0
    (published,) = desk.from_engine(publish())
    assert isinstance(published.message, Published)
    assert (published.message.generation, published.message.sources) == (1, 1)
    (again,) = desk.from_engine(bind("r2"))
    assert isinstance(again.message, Bound)
    assert [span.tolist() for span in again.message.spans] == [[1, 2, 3, 4, 5]]
    desk.delivered(again)
    desk.from_engine(Release(binding="r2"))
    known = again.message.span_ids
    (third,) = desk.from_engine(bind("r3", known=known))
    assert isinstance(third.message, Bound)
    assert third.message.spans == ()
    assert split_ids(third.message.span_ids) == split_ids(known)


def test_revocations_come_before_the_answer(desk: Desk) -> None:
    desk.from_engine(bind())
    first, second = desk.from_engine(bind("r2", reset=True))
    assert first.message == Revoked(binding="r")
    assert isinstance(second.message, Bound)
    (refused,) = desk.from_engine(publish())
    assert isinstance(refused.message, NotPublished)


def test_a_fork_comes_through(desk: Desk) -> None:
    desk.from_engine(bind())
    desk.from_engine(publish())
    fork = SessionFork(parent=KEY, generation=1)
    (bound,) = desk.from_engine(bind("c", b"explicit:c", fork=fork))
    assert isinstance(bound.message, Bound)
    assert len(bound.message.spans) == 1


def test_an_engine_that_has_not_attached_is_not_bound(desk: Desk) -> None:
    (unbound,) = desk.from_engine(bind(engine_id="other"))
    assert isinstance(unbound.message, Unbound)
    assert unbound.message.reason == "not_attached"


def test_an_answer_that_cannot_be_sent_frees_the_session(desk: Desk) -> None:
    (bound,) = desk.from_engine(bind())
    desk.undeliverable(bound)
    (bound,) = desk.from_engine(bind("r2"))
    assert isinstance(bound.message, Bound)


@pytest.mark.parametrize("parts", [(0, 9, 3), (-1, 3, 3), (4, 2, 3), (0, 5, 4), (0, 5, -1), (0, 5)])
def test_a_publication_that_contradicts_itself_changes_nothing(
    desk: Desk, parts: tuple[int, ...]
) -> None:
    desk.from_engine(bind())
    with pytest.raises(BadMessage):
        desk.from_engine(publish(parts=parts))
    assert isinstance(desk.from_engine(publish())[0].message, Published)


def test_the_gateway_lists_and_deletes(desk: Desk) -> None:
    desk.from_engine(bind())
    desk.from_engine(publish())
    desk.from_engine(bind("busy"))
    listed, _ = desk.from_gateway(ListSessions(ticket=7))
    assert isinstance(listed, Sessions)
    (facts,) = listed.sessions
    assert listed.ticket == 7
    assert facts.session_id == public_id(KEY)
    assert (facts.generation, facts.sources, facts.bound) == (1, 1, True)
    assert facts.session_bytes < listed.total_bytes < listed.capacity_bytes

    nobody, revoked = desk.from_gateway(DeleteSessions(ticket=8, session_id="0" * 16))
    assert nobody == Deleted(ticket=8, sessions=0)
    assert [to.message for to in revoked] == [Forget()]
    deleted, revoked = desk.from_gateway(DeleteSessions(ticket=9, session_id=public_id(KEY)))
    assert deleted == Deleted(ticket=9, sessions=1)
    assert [to.message for to in revoked] == [Revoked(binding="busy"), Forget()]
    desk.from_engine(bind("r9"))
    deleted, revoked = desk.from_gateway(DeleteSessions(ticket=10, session_id=None))
    assert deleted == Deleted(ticket=10, sessions=1)


def test_each_attach_is_answered_with_the_archives_name(desk: Desk) -> None:
    (answer,) = desk.from_engine(Attach(engine_id="e", generation_floor=0, bindings=()))
    assert isinstance(answer.message, Attached)
    assert answer.message.archive_id == desk.archive_id
