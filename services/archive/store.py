"""`SessionStore`: the sessions and their spans within the caps, every byte counted.

Two sums matter. A session's `nbytes` is logical: a span counts in full for each session that has
it. `total_bytes` is physical: a span counts once, also while only a fork or a snapshot that is on
its way still holds it. Both stay within their caps at every moment.
"""

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from services.archive.pool import SpanPool
from services.archive.session import ENTRY_BYTES, SESSION_BYTES, Entry, Session
from services.archive.span import Span, charge_of
from shared.messages import SpanKind
from shared.session_names import span_id_of

# The archive's own tables and objects.
BASE_BYTES = 64 * 1024


@dataclass(frozen=True)
class ArchiveLimits:
    total_bytes: int
    session_bytes: int  # at most total_bytes
    sessions: int = 32
    entries: int = 1024  # of one session


class SessionStore:
    """Knows nothing of bindings but that an owned session is not thrown out whole."""

    def __init__(self, limits: ArchiveLimits) -> None:
        assert BASE_BYTES + SESSION_BYTES < limits.session_bytes <= limits.total_bytes
        self.limits = limits
        self.evicted = 0  # entries that had to make room, ever
        self._pool = SpanPool()
        self._pins: dict[bytes, int] = {}  # span id to snapshots on their way
        self._sessions: OrderedDict[bytes, Session] = OrderedDict()  # longest unseen first
        self._own_bytes = BASE_BYTES  # base, sessions and entries, without spans

    @property
    def total_bytes(self) -> int:
        return self._own_bytes + self._pool.nbytes

    @property
    def sessions(self) -> tuple[Session, ...]:
        """The longest unseen first."""
        return tuple(self._sessions.values())

    def get(self, key: bytes) -> Session | None:
        return self._sessions.get(key)

    def see(self, session: Session) -> None:
        self._sessions.move_to_end(session.key)

    # -- whole sessions ------------------------------------------------------------------------

    def make_place(self) -> bool:
        """If there are as many sessions as may be, the longest unseen idle one goes."""
        if len(self._sessions) < self.limits.sessions:
            return True
        idle = next((s for s in self._sessions.values() if s.owner is None), None)
        if idle is None:
            return False
        self.evicted += idle.count
        self.remove(idle)
        return True

    def create(self, key: bytes, entries: Sequence[Entry] = ()) -> Session | None:
        """A session that shares `entries`, which may belong to another; None without room.

        The caller has called `make_place`, and holds the entries' spans (see `hold`).
        """
        session = Session(key)
        if not self._make_room(session.nbytes + ENTRY_BYTES * len(entries), SpanKind.TOOL):
            return None
        self._sessions[key] = session
        self._own_bytes += session.nbytes
        for entry in entries:
            self._add(session, entry.span, entry.kind, entry.seen)
        while session.nbytes > self.limits.session_bytes:  # a longer key than the other's
            weakest = session.weakest(SpanKind.TOOL)
            assert weakest is not None
            self._evict(session, weakest)
        return session

    def remove(self, session: Session) -> None:
        del self._sessions[session.key]
        for entry in list(session):
            self._remove(session, entry)
        self._own_bytes -= session.nbytes

    # -- spans ---------------------------------------------------------------------------------

    def hold(self, spans: Sequence[Span]) -> None:
        """Keeps them alive across evictions, until `drop`."""
        for span in spans:
            self._pool.hold(span)

    def drop(self, spans: Sequence[Span]) -> None:
        for span in spans:
            self._pool.drop(span)

    def pin(self, spans: Sequence[Span]) -> None:
        """Holds them for a snapshot that is on its way; evicting their entries frees nothing."""
        self.hold(spans)
        for span in spans:
            self._pins[span.span_id] = self._pins.get(span.span_id, 0) + 1

    def unpin(self, spans: Sequence[Span]) -> None:
        for span in spans:
            left = self._pins[span.span_id] - 1
            if left:
                self._pins[span.span_id] = left
            else:
                del self._pins[span.span_id]
        self.drop(spans)

    def retain(self, session: Session, tokens: np.ndarray, kind: SpanKind, seen: int) -> bool:
        """Keeps int32 `tokens` as an entry of the session; False if there is no room.

        Room is made only at the cost of entries of no higher kind: first the session's own, for
        its cap, then those of the longest unseen sessions, for the total.
        """
        span_id = span_id_of(tokens)
        entry = session.get(span_id)
        if entry is not None:
            session.see(entry, kind, seen)
            return True
        charge = charge_of(len(tokens)) + ENTRY_BYTES
        if not self._make_session_room(session, charge, kind):
            return False
        shared = self._pool.get(span_id)
        held = [] if shared is None else [shared]
        self.hold(held)  # making room must not free it meanwhile
        fits = self._make_room(charge if shared is None else ENTRY_BYTES, kind)
        if fits:
            self._add(session, shared or Span.of(tokens, span_id), kind, seen)
        self.drop(held)
        return fits

    # -- making room ---------------------------------------------------------------------------

    def _make_session_room(self, session: Session, need: int, kind: SpanKind) -> bool:
        """Evicts the session's weakest entries of no higher kind until `need` bytes fit."""
        cap = self.limits.session_bytes
        if session.nbytes - session.bytes_up_to(kind) + need > cap:
            return False
        while session.nbytes + need > cap or session.count >= self.limits.entries:
            weakest = session.weakest(kind)
            if weakest is None:
                return False
            self._evict(session, weakest)
        return True

    def _make_room(self, need: int, kind: SpanKind) -> bool:
        """Evicts the weakest entries of the longest unseen sessions until `need` bytes fit.

        Pinned spans are spared: dropping their entries would not free them now.
        """
        cap = self.limits.total_bytes
        if self.total_bytes + need <= cap:
            return True
        evictable = sum(s.bytes_up_to(kind) for s in self._sessions.values())
        if self.total_bytes - evictable + need > cap:
            return False
        for session in self._sessions.values():
            while self.total_bytes + need > cap:
                weakest = session.weakest(kind, self._pins)
                if weakest is None:
                    break
                self._evict(session, weakest)
        return self.total_bytes + need <= cap

    def _evict(self, session: Session, entry: Entry) -> None:
        self.evicted += 1
        self._remove(session, entry)

    def _add(self, session: Session, span: Span, kind: SpanKind, seen: int) -> None:
        self._pool.hold(span)
        session.add(span, kind, seen)
        self._own_bytes += ENTRY_BYTES

    def _remove(self, session: Session, entry: Entry) -> None:
        session.remove(entry)
        self._own_bytes -= ENTRY_BYTES
        self._pool.drop(entry.span)

    def check(self) -> None:
        """Walks everything: sums, holds and caps. Nothing may be held by a caller meanwhile."""
        holds = dict(self._pins)
        own = BASE_BYTES
        for key, session in self._sessions.items():
            session.check()
            assert session.key == key
            assert session.nbytes <= self.limits.session_bytes
            assert session.count <= self.limits.entries
            own += SESSION_BYTES + len(key) + ENTRY_BYTES * session.count
            for entry in session:
                holds[entry.span.span_id] = holds.get(entry.span.span_id, 0) + 1
        self._pool.check(holds)
        assert own == self._own_bytes
        assert self.total_bytes <= self.limits.total_bytes
        assert len(self._sessions) <= self.limits.sessions
