"""`SegmentIndex`: an immutable index over one token array, 12 bytes a token.

It finds the longest match of any length from 1 to 64 by binary search; no hash, so patterned ids
cannot cluster and no old span is ever evicted.
"""

from collections.abc import Collection

import numpy as np

from shared.matching.contexts import (
    BOUNDARY,
    context_order,
    longest,
    reversed_bytes,
    roomiest,
)
from shared.matching.hit import Hit


class SegmentIndex:
    """`tokens` int32 [n] with boundaries as -1; `order` int32 as `context_order` sorts it."""

    def __init__(self, tokens: np.ndarray, order: np.ndarray) -> None:
        """Both arrays are kept, not copied; only the reversed text is made here.

        Raises:
            ValueError: the arrays cannot belong to each other.
        """
        if tokens.dtype != np.int32 or order.dtype != np.int32:
            raise ValueError("tokens and order must be int32")
        if len(order) and (int(order.min()) < 1 or int(order.max()) >= len(tokens)):
            raise ValueError("order points outside of its tokens")
        self.tokens = tokens
        self.order = order
        self._slots = order.data  # indexes three times faster than the array
        self._text = reversed_bytes(tokens)
        self._stops = np.flatnonzero(tokens < 0).astype(np.int32).data

    @classmethod
    def build(cls, token_ids: np.ndarray, boundary_ids: Collection[int] = ()) -> "SegmentIndex":
        """Sorts the contexts of `token_ids` [n]; negative ids are boundaries too."""
        tokens = token_ids.astype(np.int32)
        if boundary_ids:
            special = np.fromiter(boundary_ids, np.int32, len(boundary_ids))
            tokens[np.isin(tokens, special)] = BOUNDARY
        tokens[tokens < 0] = BOUNDARY
        return cls(tokens, context_order(tokens))

    @property
    def nbytes(self) -> int:
        """Bytes held, all arrays together."""
        return self.tokens.nbytes + self.order.nbytes + len(self._text) + self._stops.nbytes

    def find(
        self, query: bytes, limit: int, *, min_match: int = 1, wrap: bool = False
    ) -> Hit | None:
        """The best hit for `query` (see `query_bytes`). An immutable text never wraps."""
        span = longest(self._slots, self._text, query, min_match)
        if span is None:
            return None
        positions = self.order[span.start : span.stop]
        position, room = roomiest(positions, self._stops, len(self.tokens), limit)
        return Hit(span.length, room, position)

    def continuation(self, position: int, count: int) -> np.ndarray:
        """int32 [count]: the tokens from `position` on."""
        return self.tokens[position : position + count]
