"""The best match of a request's last tokens in all of its sources."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import numpy as np

from shared.matching.contexts import TOKEN_BYTES, query_bytes
from shared.matching.hit import Hit, Matches


class Source(Protocol):
    """A `SegmentIndex` or a `GrowingIndex`."""

    def find(
        self, query: bytes, limit: int, *, min_match: int = 1, wrap: bool = False
    ) -> Hit | None: ...

    def matches(self, query: bytes, *, min_match: int = 1) -> Matches | None: ...

    def match_length(self, position: int, query: bytes) -> int: ...

    def available(self, position: int, limit: int, *, matched: int = 0) -> int: ...

    def roomiest(self, matches: Matches, limit: int) -> tuple[int, int]: ...

    def near(self, middle: int, behind: int, ahead: int, query: bytes) -> list[int]: ...

    def token_at(self, position: int) -> int: ...

    def go_on_alike(self, positions: np.ndarray, token: int) -> bool: ...

    def contexts(
        self, positions: list[int], count: int
    ) -> Sequence[bytes] | Sequence[bytes | bytearray]: ...

    def continuation(self, position: int, count: int) -> np.ndarray: ...


class Match(NamedTuple):
    """Where a copy may start."""

    source: int  # index into the sources that were searched
    position: int  # of its first token, in that source
    length: int  # how many of the query's tokens stand before it, 1..64
    available: int  # tokens that may be copied, at least 1, at most the limit asked for


def find(
    query: "np.ndarray | Sequence[int]",
    sources: Sequence[Source],
    limit: int,
    *,
    min_match: int = 1,
    wrap: bool = False,
) -> Match | None:
    """The longest match of the last 64 ids of `query`, then the one with more to copy, then the
    most recent: `sources` stand in the order in which they were indexed.

    `wrap` lets a loop at the end of a growing source repeat past that end. None if no match has
    `min_match` tokens, or `limit` is below 1.
    """
    wanted = query_bytes(query)
    if limit < 1 or not wanted:
        return None
    best: Match | None = None
    for index in range(len(sources) - 1, -1, -1):
        hit = sources[index].find(wanted, limit, min_match=min_match, wrap=wrap)
        if hit is None:
            continue
        if best is None or (hit.length, hit.available) > (best.length, best.available):
            best = Match(index, hit.position, hit.length, hit.available)
            min_match = hit.length
            if TOKEN_BYTES * hit.length == len(wanted) and hit.available == limit:
                break
    return best


def continuation(match: Match, sources: Sequence[Source]) -> np.ndarray:
    """int32 [match.available]: the tokens that followed. Valid until a source grows."""
    return sources[match.source].continuation(match.position, match.available)
