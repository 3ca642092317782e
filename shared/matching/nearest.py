"""The places around a position that stand behind the same tokens.

In a reversed text (`contexts.py`) those are occurrences of a byte string, which `bytes.find` finds
in a window of some hundreds of tokens faster than numpy can make an array of it.
"""

from shared.matching.contexts import TOKEN_BYTES

MOST_NEAR = 8  # places are listed
BOUNDARY_BYTE = 0xFF  # no id begins with it


def nearest_places(
    text: bytes | bytearray, count: int, query: bytes, middle: int, reach: tuple[int, int]
) -> list[int]:
    """Positions in [middle - reach[0], middle + reach[1]) of a reversed `text` of `count` tokens
    whose contexts begin with `query`, at least one id, and that have a token to continue with.

    The nearest first, of equals the older, at most MOST_NEAR.
    """
    first, last = max(middle - reach[0], 1), min(middle + reach[1], count)
    if first >= last:
        return []
    parted = min(max(middle, first), last)
    found = _downwards(text, query, first, parted) + _upwards(text, query, parted, last)
    if len(found) > 1:
        found.sort(key=lambda position: abs(position - middle))
    return found[:MOST_NEAR]


def _downwards(text: bytes | bytearray, query: bytes, first: int, last: int) -> list[int]:
    """Those in [first, last), from the last one down, at most MOST_NEAR."""
    found: list[int] = []
    end = len(text)
    stop = end - TOKEN_BYTES * first + len(query)
    at = text.find(query, end - TOKEN_BYTES * (last - 1), stop)
    while at >= 0 and len(found) < MOST_NEAR:
        position, inside = divmod(end - at, TOKEN_BYTES)
        if inside:  # the bytes of two tokens look like it
            at = text.find(query, at + 1, stop)
            continue
        if text[at - TOKEN_BYTES] != BOUNDARY_BYTE:
            found.append(position)
        at = text.find(query, at + TOKEN_BYTES, stop)
    return found


def _upwards(text: bytes | bytearray, query: bytes, first: int, last: int) -> list[int]:
    """Those in [first, last), from the first one up, at most MOST_NEAR."""
    found: list[int] = []
    end, size = len(text), len(query)
    start = end - TOKEN_BYTES * (last - 1)
    at = text.rfind(query, start, end - TOKEN_BYTES * first + size)
    while at >= 0 and len(found) < MOST_NEAR:
        position, inside = divmod(end - at, TOKEN_BYTES)
        if inside:
            at = text.rfind(query, start, at + size - 1)
            continue
        if text[at - TOKEN_BYTES] != BOUNDARY_BYTE:
            found.append(position)
        at = text.rfind(query, start, at + size - TOKEN_BYTES)
    return found
