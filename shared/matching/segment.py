"""`SegmentIndex`: an immutable index over one token array, 12 to 16 bytes a token.

It finds the longest match of any length from 1 to 64 by binary search; no hash, so patterned ids
cannot cluster and no old span is ever evicted.
"""

from bisect import bisect_left
from collections.abc import Collection

import numpy as np

from shared.matching.contexts import (
    BOUNDARY,
    FEW,
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
from shared.matching.nearest import nearest_places

FEWEST_REPEATS = 3  # of a pair on average


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
        # Slots whose contexts begin with the same two tokens stand together: pair i has the slots
        # [starts[i], starts[i + 1]) and the further token seconds[i]; the pairs [firsts[j],
        # firsts[j + 1]) have the nearest token heads[j]. Most matches are short, and these arrays
        # alone answer them. Text repeats its pairs; where it hardly does, they would cost more
        # memory than they save steps, and stay empty.
        nearest, second = tokens[order - 1], tokens[order - 2].view(np.uint32)
        second[order == 1] = 0  # the text's missing start sorts first, a boundary last
        starts = _group_starts((nearest[1:] != nearest[:-1]) | (second[1:] != second[:-1]))
        if len(starts) * FEWEST_REPEATS > len(order):
            starts = starts[:0]
        nearest = nearest[starts]
        firsts = _group_starts(nearest[1:] != nearest[:-1])[: len(starts)]
        self._heads = nearest[firsts].data
        self._firsts = np.append(firsts, len(starts)).astype(np.int32).data
        self._seconds = second[starts].data
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
        tables = (self._heads, self._firsts, self._seconds, self._starts, self._stops)
        arrays = (self.tokens, self.order, *tables)
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
        """Searches among the contexts with the query's nearest two tokens, or takes all with its
        nearest one."""
        heads, seconds, starts = self._heads, self._seconds, self._starts
        if not len(heads):
            return longest(self._slots, self._text, query, min_match)
        token = int.from_bytes(query[:TOKEN_BYTES], "big")
        head = bisect_left(heads, token)
        if head == len(heads) or heads[head] != token:
            return None
        first, last = self._firsts[head], self._firsts[head + 1]
        second = int.from_bytes(query[TOKEN_BYTES : 2 * TOKEN_BYTES], "big")
        pair = bisect_left(seconds, second, first, last)
        if pair < last and seconds[pair] == second:
            # Unless it is the place with nothing before its one token, all of them share two.
            low, high = starts[pair], starts[pair + 1]
            shared = 2 if second else 1
            span = longest(
                self._slots,
                self._text,
                query,
                max(min_match, 2),
                low=low,
                high=high,
                shared=shared,
            )
            if span is not None:
                return span
        return Span(1, starts[first], starts[last]) if min_match <= 1 else None

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

    def near(self, middle: int, behind: int, ahead: int, query: bytes) -> list[int]:
        """The positions in [middle - behind, middle + ahead) that stand right behind all of `query`
        and can be copied from: the nearest first, the older of equals, at most MOST_NEAR of them.
        """
        return nearest_places(self._text, len(self._items), query, middle, (behind, ahead))

    def token_at(self, position: int) -> int:
        return int(self._items[position])

    def go_on_alike(self, positions: np.ndarray, token: int) -> bool:
        """`token` stands at each of the positions."""
        items = self._items
        for position in positions[:FEW].tolist():
            if items[position] != token:
                return False
        return len(positions) <= FEW or bool((self.tokens[positions[FEW:]] == token).all())

    def contexts(self, positions: list[int], count: int) -> list[bytes]:
        """The `count` tokens before each position as a context, fewer where the text begins."""
        text, end = self._text, len(self._text)
        return [text[(at := end - TOKEN_BYTES * p) : at + TOKEN_BYTES * count] for p in positions]

    def continuation(self, position: int, count: int) -> np.ndarray:
        """int32 [count]: the tokens from `position` on."""
        return self.tokens[position : position + count]


def _group_starts(changes: np.ndarray) -> np.ndarray:
    """int64: 0 and each slot that differs from the one before, as bool [slots - 1] `changes`."""
    return np.append(0, np.flatnonzero(changes) + 1)
