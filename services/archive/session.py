"""`Session`: what one conversation has published, in order of value."""

from collections import OrderedDict
from collections.abc import Collection, Iterator
from dataclasses import dataclass

from services.archive.span import Span
from shared.messages import SpanKind
from shared.session_names import public_id

# What these take beside the spans: the objects and their places in tables. Measured like
# SPAN_OVERHEAD_BYTES; a session's includes its one binding.
ENTRY_BYTES = 160
SESSION_BYTES = 4096


@dataclass(slots=True)
class Entry:
    """A session's claim on a span."""

    span: Span
    kind: SpanKind
    seen: int  # in which publication, counted over all sessions


class Session:
    """Entries by kind, each kind in order of last sight, so that the weakest is found at once.

    The generation is that of its latest publication, 0 before the first.
    """

    def __init__(self, key: bytes) -> None:
        self.key = key
        self.generation = 0
        self.owner: str | None = None  # the binding that may publish
        self.last_used_s = 0.0
        self.nbytes = SESSION_BYTES + len(key)  # logical: a shared span counts in full
        self._kinds: dict[SpanKind, OrderedDict[bytes, Entry]] = {
            kind: OrderedDict() for kind in SpanKind
        }
        self._bytes = dict.fromkeys(SpanKind, 0)
        self._where: dict[bytes, SpanKind] = {}

    @property
    def public_id(self) -> str:
        return public_id(self.key)

    @property
    def count(self) -> int:
        """Entries. Not `len`: an empty session must not be false."""
        return len(self._where)

    def __iter__(self) -> Iterator[Entry]:
        for entries in self._kinds.values():
            yield from entries.values()

    def get(self, span_id: bytes) -> Entry | None:
        kind = self._where.get(span_id)
        return None if kind is None else self._kinds[kind][span_id]

    def by_sight(self) -> list[Entry]:
        """The one seen last stands last; of one publication, what the model wrote.

        The last of equal matches is copied, and a file that was written again since it was read is
        a better source than what was read.
        """
        return sorted(self, key=lambda entry: (entry.seen, entry.kind is SpanKind.GENERATED))

    def bytes_up_to(self, kind: SpanKind) -> int:
        """What evicting all entries of no higher kind would give back."""
        return sum(held for other, held in self._bytes.items() if other <= kind)

    def weakest(self, kind: SpanKind, spared: Collection[bytes] = ()) -> Entry | None:
        """The lowest kind up to `kind`, the longest unseen of it, that is not `spared`."""
        for other in SpanKind:
            if other > kind:
                break
            for span_id, entry in self._kinds[other].items():
                if span_id not in spared:
                    return entry
        return None

    def add(self, span: Span, kind: SpanKind, seen: int) -> None:
        assert span.span_id not in self._where
        self._kinds[kind][span.span_id] = Entry(span, kind, seen)
        self._where[span.span_id] = kind
        self._charge(kind, span.nbytes + ENTRY_BYTES)

    def see(self, entry: Entry, kind: SpanKind, seen: int) -> None:
        """Refreshes an entry; its kind can only rise."""
        self.remove(entry)
        self.add(entry.span, max(entry.kind, kind), seen)

    def remove(self, entry: Entry) -> None:
        span_id = entry.span.span_id
        del self._kinds[entry.kind][span_id]
        del self._where[span_id]
        self._charge(entry.kind, -entry.span.nbytes - ENTRY_BYTES)

    def _charge(self, kind: SpanKind, amount: int) -> None:
        self._bytes[kind] += amount
        self.nbytes += amount

    def check(self) -> None:
        entries = list(self)
        assert {e.span.span_id: e.kind for e in entries} == self._where
        charged = sum(e.span.nbytes + ENTRY_BYTES for e in entries)
        assert charged == sum(self._bytes.values())
        assert self.nbytes == SESSION_BYTES + len(self.key) + charged
        for of_kind in self._kinds.values():
            seen = [entry.seen for entry in of_kind.values()]
            assert seen == sorted(seen), "a kind is out of the order of sight"
