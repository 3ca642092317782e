"""Positions sorted by what stands before them: building such an order and searching it.

The *context* of position e is the tokens before it, nearest first. A text is kept reversed as
big-endian bytes, so that a context is a plain slice of it and one memcmp compares two of them:
token i lies at byte `end - 4 * (i + 1)`, the context of e starts at byte `end - 4 * e`. A boundary
(-1) reads as ff ff ff ff, which no id of a query equals; a text's missing start sorts first.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

BOUNDARY = -1
DEPTH = 64  # tokens of context that are compared, the longest match there is
TOKEN_BYTES = 4
BIG_ENDIAN = np.dtype(">i4")
NEAREST_BYTES = (
    8 * TOKEN_BYTES
)  # where most contexts part; comparing all of one takes three times as long
# Room is first tried newest by newest; texts with boundaries everywhere take one pass over all.
NEWEST_TRIES = 4
MANY = 1024  # places, from which on one pass over all of them is felt
FEW = 8  # places are looked at one by one before numpy takes the others: most answers are there


class Span(NamedTuple):
    """Slots [start, stop) of an order: their contexts share `length` >= 1 tokens with a query."""

    length: int
    start: int
    stop: int


def query_bytes(ids: "np.ndarray | Sequence[int]") -> bytes:
    """The last min(64, n) ids as a context. What stands before a negative id is cut off."""
    tail = np.asarray(ids[-DEPTH:], dtype=np.int64)[::-1]
    negative = np.flatnonzero(tail < 0)
    if negative.size:
        tail = tail[: negative[0]]
    return tail.astype(">i4").tobytes()


def ledger_query(tokens: np.ndarray) -> bytes:
    """`query_bytes` of int32 [n] `tokens` that are all real ids, in a third of its time."""
    return tokens[: -DEPTH - 1 : -1].astype(BIG_ENDIAN).tobytes()


def context_ids(query: bytes) -> np.ndarray:
    """int32 [n]: the ids of a `query_bytes`, the nearest first."""
    return np.frombuffer(query, ">i4").astype(np.int32)


def reversed_bytes(tokens: np.ndarray) -> bytes:
    return tokens[::-1].astype(">i4").tobytes()


def context_order(tokens: np.ndarray) -> np.ndarray:
    """The int32 positions e of int32 [n] `tokens`, sorted by context, 64 deep.

    Only positions with a token on both sides: something to match and something to continue with.
    """
    count = len(tokens)
    if count < 2:
        return np.empty(0, np.int32)
    keys, depth = _packed_contexts(tokens)
    order = np.argsort(keys)
    keys = keys[order]
    # Slots of equal contexts are a group; `first` marks where each begins. `rank` of a token is
    # its group's first slot plus one, 0 stands for the missing start of the text.
    first = np.ones(count, bool)
    np.not_equal(keys[1:], keys[:-1], out=first[1:])
    # In place and in 32 bits: for long texts, touching fresh memory costs more than the sort.
    ordered_rank = np.arange(1, count + 1, dtype=np.int32)
    ordered_rank *= first
    np.maximum.accumulate(ordered_rank, out=ordered_rank)
    rank = np.empty(count, np.int32)
    rank[order] = ordered_rank
    while depth < DEPTH:
        tied = ~first
        tied[:-1] |= tied[1:]
        slots = np.flatnonzero(tied)
        if not slots.size:
            break
        step = min(depth, DEPTH - depth)
        _split_groups(order, first, rank, slots, step)
        depth += step
    _sort_ties(order, first)
    usable = np.zeros(count, bool)
    usable[:-1] = (tokens[:-1] >= 0) & (tokens[1:] >= 0)
    result: np.ndarray = (order[usable[order]] + 1).astype(np.int32)
    return result


def _packed_contexts(tokens: np.ndarray) -> tuple[np.ndarray, int]:
    """uint64 keys that order as many tokens of context as fit, and how many those are."""
    top = int(tokens.max()) + 2
    symbols = tokens.astype(np.uint64)
    symbols += np.uint64(1)
    symbols[tokens < 0] = top
    bits = top.bit_length()
    depth = min(64 // bits, DEPTH)
    keys = symbols << np.uint64(bits * (depth - 1))
    shifted = np.empty_like(keys)  # one for all steps
    for back in range(1, min(depth, len(tokens))):
        shift = np.uint64(bits * (depth - 1 - back))
        keys[back:] |= np.left_shift(symbols[:-back], shift, out=shifted[back:])
    return keys, depth


def _group_starts(first: np.ndarray, slots: np.ndarray) -> np.ndarray:
    starts: np.ndarray = np.maximum.accumulate(np.where(first, slots, 0))
    return starts


def _split_groups(
    order: np.ndarray, first: np.ndarray, rank: np.ndarray, slots: np.ndarray, step: int
) -> None:
    """Prefix doubling: sorts the tied `slots` by the rank of the token `step` further back."""
    members = order[slots]
    behind = members - step
    keys = (rank[members].astype(np.int64) << 32) | np.where(behind >= 0, rank[behind], 0)
    permutation = np.argsort(keys)
    keys = keys[permutation]
    members = members[permutation]
    order[slots] = members
    first[slots[1:]] = keys[1:] != keys[:-1]
    rank[members] = _group_starts(first[slots], slots) + 1


def _sort_ties(order: np.ndarray, first: np.ndarray) -> None:
    """Contexts that are equal all the way stand in the order of their positions."""
    tied = ~first
    tied[:-1] |= tied[1:]
    slots = np.flatnonzero(tied)
    members = order[slots]
    group = _group_starts(first[slots], slots)
    order[slots] = members[np.lexsort((members, group))]


def longest(
    order: Sequence[int],
    text: bytes | bytearray,
    query: bytes | bytearray,
    min_match: int,
    *,
    low: int = 0,
    high: int | None = None,
    shared: int = 0,
) -> Span | None:
    """The slots that share the most tokens with `query`; None if fewer than `min_match`.

    Only slots in [low, high) are searched, all of which share at least so many tokens with it as
    `shared` says.
    """
    end = len(text)
    size = len(query)

    def context(position: int) -> bytes | bytearray:
        at = end - TOKEN_BYTES * position
        return text[at : at + size]

    high = len(order) if high is None else high
    middle = bisect_left(order, query, low, high, key=context)
    above = common(query, context(order[middle])) if middle < high else 0
    below = common(query, context(order[middle - 1])) if middle > low else 0
    length = max(above, below)
    if length < max(min_match, 1):
        return None
    if length == shared:
        return Span(length, low, high)
    size = TOKEN_BYTES * length
    query = query[:size]
    start = middle
    if below == length:
        start = _first_equal(order, query, low, middle - 1, context)
    stop = middle
    if above == length:
        stop = _behind_equal(order, query, middle, high, context)
    return Span(length, start, stop)


Context = Callable[[int], bytes | bytearray]


def _first_equal(
    order: Sequence[int], query: bytes | bytearray, low: int, last: int, context: Context
) -> int:
    """The first slot of [low, last] whose context is `query`; that of `last` is. Most queries have
    few equals, so the search walks away from there in growing steps before it halves."""
    if last == low or context(order[last - 1]) != query:
        return last
    step = 1
    while last - step >= low and context(order[last - step]) == query:
        last -= step
        step *= 2
    return bisect_left(order, query, max(low, last - step), last, key=context)


def _behind_equal(
    order: Sequence[int], query: bytes | bytearray, first: int, high: int, context: Context
) -> int:
    """One behind the last slot of [first, high) whose context is `query`; that of `first` is."""
    if first + 1 == high or context(order[first + 1]) != query:
        return first + 1
    step = 1
    while first + step < high and context(order[first + step]) == query:
        first += step
        step *= 2
    return bisect_right(order, query, first + 1, min(high, first + step), key=context)


def common_length(text: bytes | bytearray, position: int, query: bytes) -> int:
    """How many tokens the context of `position` shares with `query`, at most 64."""
    at = len(text) - TOKEN_BYTES * position
    return common(query, text[at : at + len(query)])


def following(query: bytes) -> bytes:
    """What sorts right behind all contexts that begin with `query`, which is at least one id."""
    return (int.from_bytes(query, "big") + 1).to_bytes(len(query), "big")


def common(left: bytes | bytearray, right: bytes | bytearray) -> int:
    """How many leading tokens are equal."""
    if left[:NEAREST_BYTES] != right[:NEAREST_BYTES]:
        left, right = left[:NEAREST_BYTES], right[:NEAREST_BYTES]
    size = min(len(left), len(right))
    difference = int.from_bytes(left[:size], "big") ^ int.from_bytes(right[:size], "big")
    return (8 * size - difference.bit_length()) // (8 * TOKEN_BYTES)


def room_at(position: int, stops: Sequence[int], end: int) -> int:
    """Tokens from `position` to the next of the sorted boundaries `stops`, or to the `end`."""
    following = bisect_left(stops, position)
    return (stops[following] if following < len(stops) else end) - position


def roomiest(positions: np.ndarray, stops: Sequence[int], end: int, limit: int) -> tuple[int, int]:
    """The position with the most room, clipped at `limit`, the newest of equals; and that room."""
    newest = int(positions[0]) if len(positions) == 1 else int(positions.max())
    room = room_at(newest, stops, end)
    if room >= limit or len(positions) == 1:
        return newest, min(room, limit)
    if len(positions) > MANY:
        # A text of one repeated token matches everywhere; its newest places hold one with room.
        found = _roomiest(positions[positions >= newest - MANY], stops, end, limit)
        if found[1] == limit:
            return found
    return _roomiest(positions, stops, end, limit)


def _roomiest(positions: np.ndarray, stops: Sequence[int], end: int, limit: int) -> tuple[int, int]:
    left = positions
    for _ in range(NEWEST_TRIES):
        newest = int(left.max())
        room = room_at(newest, stops, end)
        if room >= limit:
            return newest, limit
        # Everything this close before that stop, or before an earlier one, has less room too.
        left = left[left <= newest + room - limit]
        if not left.size:
            break
    bounds = np.append(np.asarray(stops, np.int64), end)
    rooms = np.minimum(bounds[np.searchsorted(bounds, positions)] - positions, limit)
    most = int(rooms.max())
    return int(positions[rooms == most].max()), most
