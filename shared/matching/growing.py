"""`GrowingIndex`: committed output, indexed token by token.

The text is one reversed buffer. Its positions are sorted in runs: a short *tail* that every one
is inserted into before the next search, and sealed runs that are merged pairwise up to a cap, so
that neither an insertion nor a merge is ever long. Runs share the text, hence contexts and
continuations cross their edges.
"""

import struct
from array import array
from bisect import bisect_left
from collections.abc import Collection, Iterator, Sequence

import numpy as np

from shared.matching.contexts import (
    BOUNDARY,
    DEPTH,
    FEW,
    TOKEN_BYTES,
    common_length,
    context_order,
    longest,
    room_at,
    roomiest,
)
from shared.matching.hit import Hit, Matches
from shared.matching.nearest import nearest_places
from shared.matching.tail import KEY_BYTES, Tail

MOST_UNSORTED = 128  # positions; sorting so many takes about 100 microseconds
TAIL_POSITIONS = 4096  # an insertion moves 24 KiB on average: 0.2 of its 0.8 microseconds
RUN_POSITIONS = 65_536  # the largest merge takes about 7 ms, once in as many tokens
CAPACITY_TOKENS = 1_048_576
FIRST_TOKENS = 1024
_TOKEN = struct.Struct(">i")


class GrowingIndex:
    """Holds at most `capacity` tokens; when full, the older half is forgotten."""

    def __init__(
        self, boundary_ids: Collection[int] = (), *, capacity: int = CAPACITY_TOKENS
    ) -> None:
        self._boundary_ids = frozenset(boundary_ids)
        self._capacity = capacity
        self._text = bytearray(TOKEN_BYTES * min(FIRST_TOKENS, capacity))
        self._count = 0  # tokens in `_text`
        self._forgotten = 0  # tokens that were dropped before them
        self._sorted = 0  # positions below are in the tail or in a run
        self._stops: array[int] = array("i")
        self._runs: list[array[int]] = []
        self._tail = Tail()

    def __len__(self) -> int:
        """How many tokens were ever appended."""
        return self._forgotten + self._count

    @property
    def nbytes(self) -> int:
        positions = sum(p.buffer_info()[1] * p.itemsize for p in (*self._runs, self._stops))
        return len(self._text) + self._tail.nbytes + positions

    def append(self, token_ids: "np.ndarray | Sequence[int]") -> None:
        """Committed tokens, in order; special ids become boundaries."""
        tokens = token_ids.tolist() if isinstance(token_ids, np.ndarray) else list(token_ids)
        special = self._boundary_ids
        if tokens and (min(tokens) < 0 or not special.isdisjoint(tokens)):
            tokens = [BOUNDARY if t < 0 or t in special else t for t in tokens]
        while tokens:
            room = len(self._text) // TOKEN_BYTES - self._count
            self._write(tokens if len(tokens) <= room else tokens[:room])
            tokens = tokens[room:]
            if tokens:
                self._make_room()
        if self._count - self._sorted >= MOST_UNSORTED:
            self._sort()

    def find(
        self, query: bytes, limit: int, *, min_match: int = 1, wrap: bool = False
    ) -> Hit | None:
        """The best hit for `query` (see `query_bytes`).

        With `wrap`, a text that has just repeated its last p tokens is a loop of period p: its
        continuation goes on past the end, repeating those tokens.
        """
        best: Hit | None = None
        for length, slots in self._longest(query, min_match):
            hit = self._choose(slots, length, limit, wrap)
            best = hit if best is None else max(best, hit)
        return best

    def matches(self, query: bytes, *, min_match: int = 1) -> Matches | None:
        """Every place of the longest match; None if it is shorter than `min_match`."""
        best: list[array[int]] = []
        most = 0
        for length, slots in self._longest(query, min_match):
            if length > most:
                best, most = [], length
            best.append(slots)
        if not best:
            return None
        positions = np.frombuffer(best[0], np.int32)
        if len(best) > 1:
            positions = np.concatenate([np.frombuffer(slots, np.int32) for slots in best])
        if self._forgotten:
            positions = positions + np.int32(self._forgotten)
        return Matches(most, positions)

    def match_length(self, position: int, query: bytes) -> int:
        """How many tokens of `query` stand before `position`, 0..64; 0 if it is forgotten."""
        held = position - self._forgotten
        return common_length(self._text, held, query) if 0 < held <= self._count else 0

    def available(self, position: int, limit: int, *, matched: int = 0) -> int:
        """Tokens that may be copied from `position` on, 0..`limit`.

        If `matched` tokens before it match the text's end, and they reach from there to
        `position`, the text is a loop, whose continuation goes on past the end.
        """
        held = position - self._forgotten
        if not 0 < held < self._count:
            return 0
        room = room_at(held, self._stops, self._count)
        if matched >= self._count - held == room:
            return limit
        return min(room, limit)

    def roomiest(self, matches: Matches, limit: int) -> tuple[int, int]:
        """Of all places the one with the most to copy, the newest of equals; and how much, clipped
        at `limit`. In a loop that is the newest place."""
        held = (
            matches.positions - np.int32(self._forgotten) if self._forgotten else matches.positions
        )
        newest = int(held.max()) + self._forgotten
        if self.available(newest, limit, matched=matches.length) == limit:
            return newest, limit
        position, room = roomiest(held, self._stops, self._count, limit)
        return position + self._forgotten, room

    def near(self, middle: int, behind: int, ahead: int, query: bytes) -> list[int]:
        """As of a `SegmentIndex`."""
        gone = self._forgotten
        held = nearest_places(self._text, self._count, query, middle - gone, (behind, ahead))
        return [position + gone for position in held]

    def token_at(self, position: int) -> int:
        token: int = _TOKEN.unpack_from(self._text, self._at(position - self._forgotten + 1))[0]
        return token

    def go_on_alike(self, positions: np.ndarray, token: int) -> bool:
        """`token` stands at each of the positions."""
        text, expected = self._text, _TOKEN.pack(token)
        first = len(text) - TOKEN_BYTES * (1 - self._forgotten)
        for position in positions[:FEW].tolist():
            at = first - TOKEN_BYTES * position
            if text[at : at + TOKEN_BYTES] != expected:
                return False
        if len(positions) <= FEW:
            return True
        standing = np.frombuffer(text, ">i4")[first // TOKEN_BYTES - positions[FEW:]]
        return bool((standing == token).all())

    def contexts(self, positions: list[int], count: int) -> list[bytes | bytearray]:
        """As of a `SegmentIndex`."""
        text, end = self._text, self._at(-self._forgotten)
        return [text[(at := end - TOKEN_BYTES * p) : at + TOKEN_BYTES * count] for p in positions]

    def continuation(self, position: int, count: int) -> np.ndarray:
        """int32 [count]: the tokens from `position` on; past the end they repeat (a loop)."""
        first = position - self._forgotten
        last = min(first + count, self._count)
        return np.resize(self._tokens(first, last), count)

    def _choose(self, slots: "array[int]", length: int, limit: int, wrap: bool) -> Hit:
        positions = np.frombuffer(slots, np.int32)
        if wrap:
            newest = int(positions.max())
            to_end = self._count - newest
            if length >= to_end == room_at(newest, self._stops, self._count):
                return Hit(length, limit, newest + self._forgotten)
        position, room = roomiest(positions, self._stops, self._count, limit)
        return Hit(length, room, position + self._forgotten)

    def _tokens(self, first: int, last: int) -> np.ndarray:
        """A copy of the tokens [first, last)."""
        stretch = np.frombuffer(self._text[self._at(last) : self._at(first)], ">i4")
        tokens: np.ndarray = stretch[::-1].astype(np.int32)
        return tokens

    def _at(self, position: int) -> int:
        """The byte at which the context of `position` starts."""
        return len(self._text) - TOKEN_BYTES * position

    def _write(self, tokens: list[int]) -> None:
        """Into the text, which has room for them."""
        first, count = self._count, len(tokens)
        self._text[self._at(first + count) : self._at(first)] = struct.pack(
            f">{count}i", *reversed(tokens)
        )
        self._count += count
        if BOUNDARY in tokens:
            self._stops.extend(at for at, token in enumerate(tokens, first) if token == BOUNDARY)

    def _sort(self) -> None:
        """Takes the positions that are not sorted yet into the tail. A copy that goes on asks for
        none of them, so they wait for the next search, or until they are many.

        Not the text's end: only with a token behind it there is something to continue with.
        """
        first, count = max(self._sorted, 1), self._count
        if first >= count:
            return
        blocked: set[int] = set()
        if self._stops and self._stops[-1] >= first - 1:
            stops = self._stops[bisect_left(self._stops, first - 1) :]
            blocked = {*stops, *(stop + 1 for stop in stops)}
        start = self._at(count)
        keys = bytes(self._text[start : self._at(first) + KEY_BYTES])  # each one is a slice
        for position in range(first, count):
            if position not in blocked:
                at = TOKEN_BYTES * (count - position)
                self._tail.insert(position, keys[at : at + KEY_BYTES], self._text)
                if len(self._tail) >= TAIL_POSITIONS:
                    self._seal()
        self._sorted = count

    def _longest(self, query: bytes, min_match: int) -> "Iterator[tuple[int, array[int]]]":
        """The longest match of each run that has one at least as long as those before it, and its
        places."""
        self._sort()
        text = self._text
        for run in self._runs:
            span = longest(run, text, query, min_match)
            if span is not None:
                min_match = span.length
                yield span.length, run[span.start : span.stop]
        span = self._tail.longest(text, query, min_match)
        if span is not None:
            yield span.length, self._tail.positions[span.start : span.stop]

    def _seal(self) -> None:
        run, self._tail = self._tail.positions, Tail()
        while self._runs and len(self._runs[-1]) <= len(run) <= RUN_POSITIONS // 2:
            run = self._merged(self._runs.pop(), run)
        self._runs.append(run)

    def _merged(self, older: "array[int]", newer: "array[int]") -> "array[int]":
        """Sorts their stretch of the text anew, in numpy: a sixth of the time of a merge here."""
        first, last = min(older), max(newer)
        start = max(0, first - DEPTH)
        order = context_order(self._tokens(start, last + 1)) + np.int32(start)
        return array("i", order[order >= first].tobytes())

    def _make_room(self) -> None:
        if self._count >= self._capacity:
            self._forget_older_half()
            return
        tokens = min(2 * self._count, self._capacity)
        self._text = bytearray(TOKEN_BYTES * (tokens - self._count)) + self._text

    def _forget_older_half(self) -> None:
        kept = self._count // 2
        dropped = self._count - kept
        tokens = self._tokens(dropped, self._count)
        self._text = bytearray(TOKEN_BYTES * dropped) + self._text[: TOKEN_BYTES * kept]
        self._count = kept
        self._forgotten += dropped
        self._stops = array("i", np.flatnonzero(tokens < 0).tolist())
        self._runs = [array("i", context_order(tokens).tobytes())]
        self._tail = Tail()
        self._sorted = kept
