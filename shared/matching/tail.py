"""`Tail`: the newest positions of a growing text, sorted by context as they come.

The contexts' first tokens lie beside the positions as plain bytes, so that a search among them is
one `bisect` without a call back into Python.
"""

from array import array
from bisect import bisect_left, bisect_right

from shared.matching.contexts import DEPTH, TOKEN_BYTES, Span, common, following, longest

KEY_BYTES = 64  # a twelfth of code's tokens tie over so many; over 16 bytes a third
KEY_OVERHEAD_BYTES = 41  # of a bytes object and its place in a list
CONTEXT_BYTES = DEPTH * TOKEN_BYTES


class Tail:
    """Positions of a reversed text (`contexts.py`), which every call names."""

    def __init__(self) -> None:
        self.positions: array[int] = array("i")
        self._keys: list[bytes] = []  # each context's first KEY_BYTES

    def __len__(self) -> int:
        return len(self._keys)

    @property
    def nbytes(self) -> int:
        keys = len(self._keys) * (KEY_BYTES + KEY_OVERHEAD_BYTES)
        return keys + self.positions.buffer_info()[1] * self.positions.itemsize

    def insert(self, position: int, key: bytes, text: bytearray) -> None:
        """`key`: the first KEY_BYTES of the position's context."""
        keys = self._keys
        at = bisect_right(keys, key)
        if at and keys[at - 1] == key:
            at = self._among_equals(position, bisect_left(keys, key, 0, at), at, text)
        keys.insert(at, key)
        self.positions.insert(at, position)

    def longest(self, text: bytearray, query: bytes, min_match: int) -> Span | None:
        """As `longest` says; the keys decide wherever fewer tokens match than they hold."""
        keys, key = self._keys, query[:KEY_BYTES]
        at = bisect_left(keys, key)
        above = common(key, keys[at]) if at < len(keys) else 0
        below = common(key, keys[at - 1]) if at else 0
        length = max(above, below)
        if TOKEN_BYTES * length == len(key) < len(query):
            high = bisect_right(keys, key, at)
            return longest(self.positions, text, query, min_match, low=at, high=high)
        if length < max(min_match, 1):
            return None
        shared = key[: TOKEN_BYTES * length]
        start = bisect_left(keys, shared, 0, at) if below == length else at
        stop = bisect_left(keys, following(shared), at) if above == length else at
        return Span(length, start, stop)

    def _among_equals(self, position: int, low: int, high: int, text: bytearray) -> int:
        end = len(text)

        def context(position: int) -> bytearray:
            at = end - TOKEN_BYTES * position
            return text[at : at + CONTEXT_BYTES]

        return bisect_right(self.positions, context(position), low, high, key=context)
