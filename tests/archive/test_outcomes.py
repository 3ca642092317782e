"""The outcome of each way to bind, as a table; what publishing and revoking mean."""

import pytest

from services.archive.archive import Archive, Fork, Snapshot
from tests.archive.making import bound, held, make_archive, part, publish, text

PARENT, CHILD = b"explicit:parent", b"explicit:child"


@pytest.fixture
def archive() -> Archive:
    """One idle session with one publication, generation 1."""
    made = make_archive(sessions=3)
    assert publish(made, PARENT, part(1)) == 1
    return made


def test_a_new_name_is_an_empty_session(archive: Archive) -> None:
    assert bound(archive, "r", CHILD) == Snapshot(0, (), (), archive.owned_by("r").nbytes)  # type: ignore[union-attr]


def test_an_idle_session_gives_its_latest_snapshot(archive: Archive) -> None:
    snapshot = bound(archive, "r", PARENT)
    assert snapshot.generation == 1
    assert [span.tokens.tolist() for span in snapshot.missing] == [text(1).tolist()]


def test_only_what_is_unknown_is_moved(archive: Archive) -> None:
    known = bound(archive, "r", PARENT).span_ids
    archive.release("r")
    publish(archive, PARENT, part(2))
    snapshot = bound(archive, "r2", PARENT, known=known)
    assert [span.tokens.tolist() for span in snapshot.missing] == [text(2).tolist()]
    assert snapshot.span_ids[0] == known[0]


def test_a_session_is_bound_once_at_a_time(archive: Archive) -> None:
    bound(archive, "r", PARENT)
    assert archive.bind("r2", PARENT) == "busy"
    archive.release("r")
    bound(archive, "r2", PARENT)


def test_a_fork_shares_the_past_and_nothing_else(archive: Archive) -> None:
    snapshot = bound(archive, "r", CHILD, fork=Fork(PARENT, 1))
    assert [span.tokens.tolist() for span in snapshot.missing] == [text(1).tolist()]
    archive.publish("r", [part(2)])
    publish(archive, PARENT, part(3))
    assert held(archive, CHILD) == [text(1).tolist(), text(2).tolist()]
    assert held(archive, PARENT) == [text(1).tolist(), text(3).tolist()]
    bound(archive, "reset", PARENT, reset=True)
    assert held(archive, CHILD) == [text(1).tolist(), text(2).tolist()]


@pytest.mark.parametrize(
    ("key", "fork", "reset", "reason"),
    [
        (CHILD, Fork(b"explicit:nobody", 1), False, "unknown_parent"),
        (CHILD, Fork(PARENT, 2), False, "stale_generation"),
        (CHILD, Fork(PARENT, 0), False, "stale_generation"),
        (PARENT, Fork(PARENT, 1), False, "parent_is_session"),
        (b"explicit:idle", Fork(PARENT, 1), False, "session_exists"),
        (CHILD, Fork(PARENT, 1), True, "reset_with_parent"),
    ],
)
def test_what_cannot_be_forked_leaves_no_session_behind(
    archive: Archive, key: bytes, fork: Fork, reset: bool, reason: str
) -> None:
    publish(archive, b"explicit:idle", part(5))
    before = [(s.key, s.generation, s.count) for s in archive.store.sessions]
    assert archive.bind("r", key, fork=fork, reset=reset) == reason
    assert sorted((s.key, s.generation, s.count) for s in archive.store.sessions) == sorted(before)
    assert archive.owned_by("r") is None


def test_a_generation_of_a_cleared_session_is_stale_for_ever(archive: Archive) -> None:
    bound(archive, "r", PARENT, reset=True)
    assert archive.bind("f", CHILD, fork=Fork(PARENT, 1)) == "stale_generation"
    session = archive.publish("r", [])
    assert session is not None
    assert session.generation == 2
    assert archive.bind("f", CHILD, fork=Fork(PARENT, 1)) == "stale_generation"


def test_a_reset_revokes_a_busy_owner_and_its_publication(archive: Archive) -> None:
    bound(archive, "old", PARENT)
    assert bound(archive, "new", PARENT, reset=True).span_ids == ()
    assert archive.take_revoked() == ["old"]
    assert archive.publish("old", [part(9)]) is None
    assert archive.owned_by("new") is not None
    assert archive.publish("new", [part(2)]) is not None
    assert held(archive, PARENT) == [text(2).tolist()]
    assert archive.generation == 2  # the refused publication has none


def test_when_all_places_are_taken_the_longest_unseen_idle_session_goes(archive: Archive) -> None:
    publish(archive, b"second", part(2))
    bound(archive, "r", PARENT)  # busy, and seen last
    archive.release("r")
    bound(archive, "third", b"third")
    bound(archive, "r4", b"fourth")
    assert [s.key for s in archive.store.sessions] == [PARENT, b"third", b"fourth"]
    bound(archive, "busy", PARENT)
    assert archive.bind("r5", b"fifth") == "sessions_busy"


def test_a_publication_that_adds_nothing_has_a_generation_too(archive: Archive) -> None:
    assert publish(archive, PARENT) == 2
    assert publish(archive, PARENT, part(1)) == 3
    assert held(archive, PARENT) == [text(1).tolist()]


def test_a_cancelled_request_leaves_session_and_generation_as_they_were(archive: Archive) -> None:
    bound(archive, "r", PARENT)
    archive.release("r")
    assert archive.publish("r", [part(2)]) is None
    assert archive.generation == 1
    assert bound(archive, "r2", PARENT).generation == 1


def test_deleting_by_the_public_name_revokes(archive: Archive) -> None:
    from_list = archive.store.sessions[0]
    bound(archive, "r", PARENT)
    assert not archive.delete("0123456789abcdef")
    assert archive.delete(from_list.public_id)
    assert archive.take_revoked() == ["r"]
    assert archive.store.sessions == ()


def test_a_new_engine_starts_with_nothing_and_its_floor_holds(archive: Archive) -> None:
    archive.attach("one", 5, ())
    assert archive.store.sessions == ()
    assert publish(archive, PARENT, part(1)) == 6
    archive.attach("one", 2, ())  # a floor never lowers the count
    assert publish(archive, PARENT) == 7


def test_bindings_that_the_engine_lost_are_released(archive: Archive) -> None:
    archive.attach("one", 0, ())
    bound(archive, "lost", PARENT)
    bound(archive, "kept", CHILD)
    archive.attach("one", 0, ["kept", "unknown"])
    assert archive.owned_by("lost") is None
    assert archive.owned_by("kept") is not None
    bound(archive, "next", PARENT)
