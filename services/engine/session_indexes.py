"""`SessionIndexes`: what a snapshot is searched with.

One or two `SegmentIndex`es, however many spans it has: a lookup then costs the same for one text
and for a thousand. In a running conversation the first index stays, and only what is new is indexed
beside it, until that is half as large.
"""

from collections import OrderedDict
from collections.abc import Sequence

import numpy as np

from shared.matching.contexts import BOUNDARY
from shared.matching.segment import SegmentIndex

INDEX_TOKEN_BYTES = 12
# Share of the first index from which on both are built anew as one.
REBUILD_SHARE = 0.5


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


def _join(spans: Sequence[np.ndarray]) -> SegmentIndex:
    """One index, with a boundary between any two spans."""
    stop = np.array([BOUNDARY], np.int32)
    pieces = [piece for tokens in spans for piece in (tokens, stop)]
    return SegmentIndex.build(np.concatenate(pieces[:-1]))
