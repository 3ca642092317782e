"""`SpanCache`: the spans that the archive need not send again."""

from collections import OrderedDict
from collections.abc import Iterable

import numpy as np


class SpanCache:
    """At most `capacity` bytes of tokens; the longest unused go first."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._spans: OrderedDict[bytes, np.ndarray] = OrderedDict()
        self.nbytes = 0

    def known(self) -> dict[bytes, np.ndarray]:
        """A copy: what is announced as known must outlive an eviction."""
        return dict(self._spans)

    def add(self, span_id: bytes, tokens: np.ndarray) -> np.ndarray:
        """Keeps a copy and returns it: `tokens` are a view of a whole message."""
        if span_id not in self._spans:
            self._spans[span_id] = tokens.copy()
            self.nbytes += tokens.nbytes
        return self._spans[span_id]

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
