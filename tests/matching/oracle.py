"""The contract of a lookup, spelled out slowly: every position of every source is compared."""

from collections.abc import Collection, Sequence

import numpy as np

from shared.matching.lookup import Match


def mapped(tokens: Sequence[int], boundary_ids: Collection[int]) -> list[int]:
    return [-1 if t in boundary_ids or t < 0 else t for t in tokens]


def match_length(text: Sequence[int], position: int, query: Sequence[int]) -> int:
    length = 0
    while (
        length < min(64, len(query), position)
        and text[position - 1 - length] == query[-1 - length] >= 0
    ):
        length += 1
    return length


def room(text: Sequence[int], position: int) -> int:
    end = position
    while end < len(text) and text[end] != -1:
        end += 1
    return end - position


def best_match(
    query: Sequence[int],
    texts: Sequence[Sequence[int]],
    limit: int,
    *,
    min_match: int = 1,
    wrap: Collection[int] = (),
) -> Match | None:
    """`texts` hold boundaries as -1; those in `wrap` may loop past their end."""
    best: tuple[int, int, int, int] | None = None
    for source, text in enumerate(texts):
        for position in range(1, len(text)):
            length = match_length(text, position, query)
            available = min(room(text, position), limit)
            if length < max(min_match, 1) or available < 1:
                continue
            to_end = len(text) - position
            if source in wrap and room(text, position) == to_end <= length:
                available = limit
            candidate = (length, available, source, position)
            best = candidate if best is None else max(best, candidate)
    return None if best is None else Match(best[2], best[3], best[0], best[1])


def expected_tokens(text: Sequence[int], match: Match) -> list[int]:
    copied = list(text[match.position :])
    return [copied[i % len(copied)] for i in range(match.available)]


def int32(values: Sequence[int]) -> np.ndarray:
    return np.array(values, dtype=np.int32)
