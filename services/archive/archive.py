"""`Archive`: the rules of binding, forking, resetting and publishing. No sockets.

A *binding* is one request's hold on a session: nobody else may publish to it. It starts with a
*snapshot*, the session's entries at that moment, and ends with a publication or a release. A
*generation* numbers publications and is never used twice.
"""

import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

import numpy as np

from services.archive.session import Session
from services.archive.span import Span, cut
from services.archive.store import ArchiveLimits, SessionStore
from shared.messages import SpanKind, UnboundReason


@dataclass(frozen=True)
class Part:
    """A stretch of what is published; its kind decides what it may displace."""

    tokens: np.ndarray  # int32 [n]; negative ids are boundaries
    kind: SpanKind


@dataclass(frozen=True)
class Fork:
    parent: bytes
    generation: int


@dataclass(frozen=True)
class Snapshot:
    """A session as it was when it was bound. `missing` stays pinned until `Archive.unpin`."""

    generation: int
    span_ids: tuple[bytes, ...]  # the one seen last stands last
    missing: tuple[Span, ...]  # those that the binder does not know
    session_bytes: int


class Archive:
    """All methods belong to one thread; whoever was revoked by a call is in `take_revoked`."""

    def __init__(self, limits: ArchiveLimits, *, clock: Callable[[], float] = time.time) -> None:
        self.store = SessionStore(limits)
        self.generation = 0
        self._clock = clock
        self._engine_id: str | None = None
        self._owned: dict[str, Session] = {}  # binding to session
        self._revoked: list[str] = []
        self._sightings = 0

    def owned_by(self, binding: str) -> Session | None:
        return self._owned.get(binding)

    def take_revoked(self) -> list[str]:
        """Bindings that lost their session since the last call: no view, no publication."""
        revoked, self._revoked = self._revoked, []
        return revoked

    # -- the engine's life ---------------------------------------------------------------------

    def attach(self, engine_id: str, floor: int, bindings: Collection[str]) -> None:
        """An engine says who it is, the highest generation that it may have seen, and which
        bindings it has. A new engine starts with nothing; bindings that it lost are released."""
        if engine_id != self._engine_id:
            self.delete_all()
            self._revoked.clear()  # nobody is left to hear of it
            self._engine_id = engine_id
        self.generation = max(self.generation, floor)
        for binding in [b for b in self._owned if b not in bindings]:
            self.release(binding)

    def is_attached(self, engine_id: str) -> bool:
        return engine_id == self._engine_id

    # -- binding -------------------------------------------------------------------------------

    def bind(
        self,
        binding: str,
        key: bytes,
        *,
        fork: Fork | None = None,
        reset: bool = False,
        known: Collection[bytes] = (),
    ) -> Snapshot | UnboundReason:
        """A snapshot, or why there is none. `known` are ids of spans that need not be sent."""
        if reset and fork is not None:
            return "reset_with_parent"
        if reset:
            self._remove(self.store.get(key))
        session = self._fork(key, fork) if fork is not None else self._find(key)
        if not isinstance(session, Session):
            return session
        session.owner = binding
        self._owned[binding] = session
        self._see(session)
        entries = session.by_sight()
        missing = tuple(e.span for e in entries if e.span.span_id not in known)
        self.store.pin(missing)
        span_ids = tuple(entry.span.span_id for entry in entries)
        return Snapshot(session.generation, span_ids, missing, session.nbytes)

    def unpin(self, snapshot: Snapshot) -> None:
        """The snapshot has been delivered, or never will be. Once for each snapshot."""
        self.store.unpin(snapshot.missing)

    def _find(self, key: bytes) -> Session | UnboundReason:
        session = self.store.get(key)
        if session is not None:
            return session if session.owner is None else "busy"
        if not self.store.make_place():
            return "sessions_busy"
        return self.store.create(key) or "no_room"

    def _fork(self, key: bytes, fork: Fork) -> Session | UnboundReason:
        """A new session with the parent's entries; the two are independent from here on."""
        if fork.parent == key:
            return "parent_is_session"
        if self.store.get(key) is not None:
            return "session_exists"
        parent = self.store.get(fork.parent)
        if parent is None:
            return "unknown_parent"
        if not fork.generation or parent.generation != fork.generation:
            return "stale_generation"
        self._see(parent)
        entries = parent.by_sight()
        spans = [entry.span for entry in entries]
        self.store.hold(spans)
        try:
            if not self.store.make_place():
                return "sessions_busy"
            return self.store.create(key, entries) or "no_room"
        finally:
            self.store.drop(spans)

    def _see(self, session: Session) -> None:
        self.store.see(session)
        session.last_used_s = self._clock()

    # -- the end of a binding ------------------------------------------------------------------

    def release(self, binding: str) -> None:
        """Ends it without a publication. Unknown ones are fine."""
        session = self._owned.pop(binding, None)
        if session is not None:
            session.owner = None

    def publish(self, binding: str, parts: Sequence[Part]) -> Session | None:
        """Merges `parts`, in the order of the text, into the binding's session and ends it.

        None if the binding is unknown or was revoked; nothing changes then. What finds no room is
        left out: parts of the highest kind are kept first, so chatter loses.
        """
        session = self._owned.pop(binding, None)
        if session is None:
            return None
        session.owner = None
        self._see(session)
        self._sightings += 1
        for part in sorted(parts, key=lambda part: -part.kind):
            for tokens in cut(part.tokens):
                self.store.retain(session, tokens, part.kind, self._sightings)
        self.generation += 1
        session.generation = self.generation
        return session

    # -- removing ------------------------------------------------------------------------------

    def delete(self, session_id: str) -> bool:
        """Removes the session whose public id this is, and revokes its owner."""
        found = [s for s in self.store.sessions if s.public_id == session_id]
        return self._remove(found[0] if found else None)

    def delete_all(self) -> int:
        return sum(self._remove(session) for session in self.store.sessions)

    def _remove(self, session: Session | None) -> bool:
        if session is None:
            return False
        if session.owner is not None:
            del self._owned[session.owner]
            self._revoked.append(session.owner)
        self.store.remove(session)
        return True

    def check(self) -> None:
        self.store.check()
        owners = {s.owner: s for s in self.store.sessions if s.owner is not None}
        assert owners == self._owned
