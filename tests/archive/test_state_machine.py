"""Any interleaving of requests, resets, forks, deletions and restarts, beside the plain model.

After each step: the same outcomes, owners and generations; only published content, never of a
higher kind; caps and every sum recomputed.
"""

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from services.archive.archive import Archive, Fork, Part, Snapshot
from services.archive.session import SESSION_BYTES
from services.archive.store import BASE_BYTES, ArchiveLimits
from shared.messages import SpanKind
from shared.session_names import public_id
from tests.archive.model import ModelArchive

KEYS = [f"explicit:{name}".encode() for name in ("a", "b", "c", "d", "e-with-a-longer-name")]
MAX_SESSIONS = 4
# tight on purpose: a few spans of the larger sizes fill a session, three sessions the archive
SESSION_CAP = SESSION_BYTES + BASE_BYTES + 60_000
LIMITS = ArchiveLimits(
    total_bytes=SESSION_CAP + 120_000, session_bytes=SESSION_CAP, sessions=MAX_SESSIONS, entries=9
)
keys = st.sampled_from(KEYS)
# (which text, how long): few texts, so that sessions share content
texts = st.tuples(st.integers(0, 11), st.sampled_from([2, 4, 5, 40, 900, 2600]))
contents = st.lists(st.tuples(texts, st.sampled_from(SpanKind)), max_size=7)


def tokens_of(text: tuple[int, int]) -> np.ndarray:
    which, length = text
    return np.arange(length, dtype=np.int32) + 10_000 * which


class ArchiveMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.bindings = 0
        self.open: list[str] = []  # bindings that the engine believes to have
        self.snapshots: list[Snapshot] = []  # on their way
        self.seen_generations: set[int] = set()
        self.engine = 0
        self.archive = Archive(LIMITS)
        self.model = ModelArchive(MAX_SESSIONS)
        self.archive.attach("engine0", 0, ())

    # -- requests ------------------------------------------------------------------------------

    @rule(
        key=keys,
        parent=st.none() | keys,
        offset=st.sampled_from([0, 0, 0, 1]),
        reset=st.sampled_from([False, False, False, True]),
        knows_all=st.booleans(),
    )
    def bind(
        self, key: bytes, parent: bytes | None, offset: int, reset: bool, knows_all: bool
    ) -> None:
        self.bindings += 1
        binding = f"r{self.bindings}"
        number = offset
        if parent in self.model.sessions:
            number = self.model.sessions[parent].generation - offset
        fork = None if parent is None else Fork(parent, max(number, 0))
        session = self.archive.store.get(key)
        known = {e.span.span_id for e in session or ()} if knows_all else set()
        result = self.archive.bind(binding, key, fork=fork, reset=reset, known=known)
        if result == "no_room":  # the model has endless memory
            self.model.remove(key)
            self.resynchronise()
            return
        expected = self.model.bind(binding, key, parent, max(number, 0), reset)
        if isinstance(result, Snapshot):
            assert expected is None
            self.open.append(binding)
            self.snapshots.append(result)
            owned = self.archive.owned_by(binding)
            assert owned is not None
            assert result.generation == owned.generation
            assert sorted(result.span_ids) == sorted(e.span.span_id for e in owned)
            assert {s.span_id for s in result.missing} == set(result.span_ids) - known
        else:
            assert result == expected

    @precondition(lambda self: self.open)
    @rule(data=st.data(), contents=contents)
    def publish(
        self, data: st.DataObject, contents: list[tuple[tuple[int, int], SpanKind]]
    ) -> None:
        binding = data.draw(st.sampled_from(self.open))
        self.open.remove(binding)
        parts = [Part(tokens_of(text), kind) for text, kind in contents]
        session = self.archive.publish(binding, parts)
        kept = [(tuple(tokens_of(t).tolist()), kind) for t, kind in contents if t[1] >= 4]
        expected = self.model.publish(binding, kept)
        assert (session is None) == (expected is None)
        if session is not None:
            assert session.generation == expected
            assert expected not in self.seen_generations
            self.seen_generations.add(expected)

    @precondition(lambda self: self.open)
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        binding = data.draw(st.sampled_from(self.open))
        self.open.remove(binding)
        self.archive.release(binding)
        self.model.release(binding)

    @precondition(lambda self: self.snapshots)
    @rule(data=st.data())
    def deliver(self, data: st.DataObject) -> None:
        snapshot = data.draw(st.sampled_from(self.snapshots))
        self.snapshots.remove(snapshot)
        contents = [span.tokens.tolist() for span in snapshot.missing]
        self.archive.unpin(snapshot)
        assert contents == [span.tokens.tolist() for span in snapshot.missing]  # immutable

    # -- the outside ---------------------------------------------------------------------------

    @rule(key=keys)
    def delete(self, key: bytes) -> None:
        assert self.archive.delete(public_id(key)) == (key in self.model.sessions)
        self.model.remove(key)

    @rule()
    def delete_all(self) -> None:
        assert self.archive.delete_all() == len(self.model.sessions)
        self.model.clear()

    @rule(lost=st.booleans())
    def heartbeat(self, lost: bool) -> None:
        """If a release was lost, the list of open bindings makes good for it."""
        if lost and self.open:
            self.model.release(self.open.pop(0))
        floor = max(self.seen_generations, default=0)
        self.archive.attach(f"engine{self.engine}", floor, self.open)

    @rule()
    def restart_the_archive(self) -> None:
        """Sessions are lost; generations are not used again in this engine's life."""
        floor = max(self.seen_generations, default=0)
        self.archive = Archive(LIMITS)
        self.archive.attach(f"engine{self.engine}", floor, self.open)
        self.snapshots.clear()
        self.model = ModelArchive(MAX_SESSIONS, generation=floor)

    @rule()
    def restart_the_engine(self) -> None:
        self.engine += 1
        self.open.clear()
        self.archive.attach(f"engine{self.engine}", 0, ())
        assert self.archive.take_revoked() == []
        self.model.clear()
        self.model.revoked.clear()

    # -- after each step -----------------------------------------------------------------------

    @invariant()
    def everything_adds_up(self) -> None:
        self.archive.check()

    @invariant()
    def the_model_agrees(self) -> None:
        sessions = self.archive.store.sessions
        assert [s.key for s in sessions] == list(self.model.sessions)
        for session in sessions:
            expected = self.model.sessions[session.key]
            assert (session.owner, session.generation) == (expected.owner, expected.generation)
            for entry in session:
                content = tuple(entry.span.tokens.tolist())
                assert entry.kind <= expected.published[content]

    @invariant()
    def the_revoked_are_told(self) -> None:
        assert set(self.archive.take_revoked()) == self.model.revoked
        self.model.revoked.clear()

    def resynchronise(self) -> None:
        """After an outcome of pressure, which may have thrown a session out, follow the archive."""
        there = [s.key for s in self.archive.store.sessions]
        self.model.sessions = {key: self.model.sessions[key] for key in there}


TestArchive = ArchiveMachine.TestCase
TestArchive.settings = settings(max_examples=60, stateful_step_count=60, deadline=None)
