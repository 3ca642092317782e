"""What the engine keeps of sessions: spans by name, and one index for each session.

A snapshot is searched as one or two `SegmentIndex`es, however many spans it has: a lookup then
costs the same for one text and for a thousand. In a running conversation the first index stays and
only what is new is indexed beside it, until that is half as large.
"""

from collections import OrderedDict
from collections.abc import Iterable, Sequence

import numpy as np

from shared.matching.contexts import BOUNDARY
from shared.matching.segment import SegmentIndex

ID_BYTES = 16
# Share of the first index from which on both are built anew as one.
REBUILD_SHARE = 0.5


class SpanCache:
    """At most `capacity` bytes of tokens; the longest unused go first."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._spans: OrderedDict[bytes, np.ndarray] = OrderedDict()
        self.nbytes = 0

    def known(self) -> dict[bytes, np.ndarray]:
        """A copy: what is announced as known must outlive an eviction."""
        return dict(self._spans)

    def add(self, span_id: bytes, tokens: np.ndarray) -> None:
        """`tokens` are copied: they are a view of a whole message."""
        if span_id not in self._spans:
            self._spans[span_id] = tokens.copy()
            self.nbytes += tokens.nbytes

    def use(self, span_ids: Iterable[bytes]) -> None:
        for span_id in span_ids:
            if span_id in self._spans:
                self._spans.move_to_end(span_id)
        while self.nbytes > self._capacity:
            _, tokens = self._spans.popitem(last=False)
            self.nbytes -= tokens.nbytes

    def clear(self) -> None:
        self._spans.clear()
        self.nbytes = 0


class SessionIndexes:
    """The indexes of sessions by key, at most `capacity` bytes together."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._first: OrderedDict[bytes, tuple[frozenset[bytes], SegmentIndex]] = OrderedDict()

    @property
    def nbytes(self) -> int:
        return sum(index.nbytes for _, index in self._first.values())

    def build(
        self, key: bytes, span_ids: Sequence[bytes], spans: Sequence[np.ndarray]
    ) -> tuple[SegmentIndex, ...]:
        """Indexes over exactly these spans, whose last is the most recent; oldest first.

        Of more spans than `capacity` bytes allow, the most recent are taken.
        """
        span_ids, spans = self._affordable(span_ids, spans)
        kept = self._first.get(key)
        if kept is not None and kept[0].issubset(span_ids):
            inside, index = kept
            pairs = zip(span_ids, spans, strict=True)
            fresh = [tokens for span_id, tokens in pairs if span_id not in inside]
            if sum(map(len, fresh)) <= REBUILD_SHARE * len(index.tokens):
                self._first.move_to_end(key)
                return (index, _join(fresh)) if fresh else (index,)
        self._first.pop(key, None)
        if not spans:
            return ()
        index = _join(spans)
        self._first[key] = (frozenset(span_ids), index)
        while self.nbytes > self._capacity and len(self._first) > 1:
            self._first.popitem(last=False)
        return (index,)

    def clear(self) -> None:
        self._first.clear()

    def _affordable(
        self, span_ids: Sequence[bytes], spans: Sequence[np.ndarray]
    ) -> tuple[Sequence[bytes], Sequence[np.ndarray]]:
        room = self._capacity // INDEX_TOKEN_BYTES
        first = len(spans)
        while first and room >= len(spans[first - 1]):
            first -= 1
            room -= len(spans[first]) + 1
        return span_ids[first:], spans[first:]


INDEX_TOKEN_BYTES = 12


def _join(spans: Sequence[np.ndarray]) -> SegmentIndex:
    """One index, with a boundary between any two spans."""
    stop = np.array([BOUNDARY], np.int32)
    pieces = [piece for tokens in spans for piece in (tokens, stop)]
    return SegmentIndex.build(np.concatenate(pieces[:-1]))


def join_ids(span_ids: Iterable[bytes]) -> np.ndarray:
    """uint64 [2 n], as messages carry them."""
    return np.frombuffer(b"".join(span_ids), "<u8")


def split_ids(joined: np.ndarray) -> list[bytes]:
    raw = joined.tobytes()
    return [raw[at : at + ID_BYTES] for at in range(0, len(raw) - ID_BYTES + 1, ID_BYTES)]
