"""`SegmentIndex`: an immutable index over one token array, 12 to 14 bytes a token.

It finds the longest match of any length from 1 to 64 by binary search; no hash, so patterned ids
cannot cluster and no old span is ever evicted.
"""

from bisect import bisect_left
from collections.abc import Collection

import numpy as np

from shared.matching.contexts import (
    BOUNDARY,
    TOKEN_BYTES,
    Span,
    common_length,
    context_order,
    longest,
    reversed_bytes,
    room_at,
    roomiest,
)
from shared.matching.hit import Hit, Matches

FEWEST_REPEATS = 4  # of a token on average


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
        self._items = tokens.data
        self._text = reversed_bytes(tokens)
        # Slots whose contexts begin with the same token stand together: [starts[i], starts[i + 1])
        # for token heads[i]. A lookup need not halve its way there. Text repeats its tokens; where
        # they hardly do, the table would cost more memory than it saves steps, and stays empty.
        nearest = tokens[order - 1]
        starts = np.flatnonzero(np.diff(nearest, prepend=BOUNDARY))
        if len(starts) * FEWEST_REPEATS > len(order):
            starts = starts[:0]
        self._heads = nearest[starts].data
        self._starts = np.append(starts, len(order)).astype(np.int32).data
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
        arrays = (self.tokens, self.order, self._heads, self._starts, self._stops)
        return len(self._text) + sum(int(array.nbytes) for array in arrays)

    def find(
        self, query: bytes, limit: int, *, min_match: int = 1, wrap: bool = False
    ) -> Hit | None:
        """The best hit for `query` (see `query_bytes`). An immutable text never wraps."""
        span = self._longest(query, min_match)
        if span is None:
            return None
        positions = self.order[span.start : span.stop]
        position, room = roomiest(positions, self._stops, len(self.tokens), limit)
        return Hit(span.length, room, position)

    def matches(self, query: bytes, *, min_match: int = 1) -> Matches | None:
        """Every place of the longest match; None if it is shorter than `min_match`."""
        span = self._longest(query, min_match)
        if span is None:
            return None
        return Matches(span.length, self.order[span.start : span.stop])

    def _longest(self, query: bytes, min_match: int) -> Span | None:
        """Searches among the contexts with the query's nearest token only."""
        if not len(self._heads):
            return longest(self._slots, self._text, query, min_match)
        token = int.from_bytes(query[:TOKEN_BYTES], "big")
        head = bisect_left(self._heads, token)
        if head == len(self._heads) or self._heads[head] != token:
            return None
        low, high = int(self._starts[head]), int(self._starts[head + 1])
        return longest(self._slots, self._text, query, min_match, low=low, high=high)

    def match_length(self, position: int, query: bytes) -> int:
        """How many tokens of `query` stand before `position`, 0..64."""
        return common_length(self._text, position, query)

    def available(self, position: int, limit: int, *, matched: int = 0) -> int:
        """Tokens that may be copied from `position` on, 0..`limit`. Never a loop."""
        return min(room_at(position, self._stops, len(self._items)), limit)

    def roomiest(self, matches: Matches, limit: int) -> tuple[int, int]:
        """Of all places the one with the most to copy, the newest of equals; and how much, clipped
        at `limit`."""
        return roomiest(matches.positions, self._stops, len(self._items), limit)

    def near(self, first: int, last: int, token: int) -> np.ndarray:
        """int [n]: the positions in [first, last) that stand right behind `token` and can be
        copied from, ascending."""
        first = max(first, 1)
        window = self.tokens[first - 1 : max(last, first)]
        found: np.ndarray = np.flatnonzero((window[:-1] == token) & (window[1:] >= 0))
        return found + first

    def token_at(self, position: int) -> int:
        return int(self._items[position])

    def next_tokens(self, positions: np.ndarray) -> np.ndarray:
        """int32 [n]: the token at each position."""
        following: np.ndarray = self.tokens[positions]
        return following

    def before(self, positions: np.ndarray, count: int) -> np.ndarray:
        """int32 [count, n]: the tokens before each position, the nearest first. Where the text
        has none, its first token stands."""
        at = positions - np.arange(1, count + 1)[:, None]
        standing: np.ndarray = self.tokens.take(at, mode="clip")
        return standing

    def continuation(self, position: int, count: int) -> np.ndarray:
        """int32 [count]: the tokens from `position` on."""
        return self.tokens[position : position + count]
