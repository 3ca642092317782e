"""`SegmentIndex`: an immutable index over one token array, 12 bytes a token.

It finds the longest match of any length from 1 to 64 by binary search; no hash, so patterned ids
cannot cluster and no old span is ever evicted.
"""

from collections.abc import Collection

import numpy as np

from shared.matching.contexts import (
    BOUNDARY,
    common_length,
    context_order,
    longest,
    reversed_bytes,
    room_at,
    roomiest,
)
from shared.matching.hit import Hit, Matches


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

    def matches(self, query: bytes, *, min_match: int = 1) -> Matches | None:
        """Every place of the longest match; None if it is shorter than `min_match`."""
        span = longest(self._slots, self._text, query, min_match)
        if span is None:
            return None
        return Matches(span.length, self.order[span.start : span.stop])

    def match_length(self, position: int, query: bytes) -> int:
        """How many tokens of `query` stand before `position`, 0..64."""
        return common_length(self._text, position, query)

    def available(self, position: int, limit: int) -> int:
        """Tokens that may be copied from `position` on, 0..`limit`."""
        return min(room_at(position, self._stops, len(self.tokens)), limit)

    def near(self, first: int, last: int, token: int) -> np.ndarray:
        """int [n]: the positions in [first, last) that stand right behind `token`, ascending."""
        first = max(first, 1)
        found: np.ndarray = np.flatnonzero(self.tokens[first - 1 : max(last - 1, 0)] == token)
        return found + first

    def next_tokens(self, positions: np.ndarray) -> np.ndarray:
        """int32 [n]: the token at each position."""
        following: np.ndarray = self.tokens[positions]
        return following

    def continuation(self, position: int, count: int) -> np.ndarray:
        """int32 [count]: the tokens from `position` on."""
        return self.tokens[position : position + count]
