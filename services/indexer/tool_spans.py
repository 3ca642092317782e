"""Which tokens of a prompt are tool results."""

from collections.abc import Iterable

import numpy as np

from shared.messages import SourceSpan

EDGE_TOKENS = 4  # at each end a text's tokens may have joined with the template's
FEWEST_TOKENS = 12  # shorter texts stand in too many places, and are hardly worth a copy
TOKEN_BYTES = 4


def tool_spans(prompt_ids: np.ndarray, tool_ids: Iterable[np.ndarray]) -> tuple[SourceSpan, ...]:
    """One span for each tool text (int32 ids, in order) that the prompt holds verbatim.

    A template that changes a text hides it: its tokens then count as the prompt's. Where an
    earlier message holds the same text too, its first place is the one that is named.
    """
    haystack = prompt_ids.astype(np.int32).tobytes()
    spans = []
    behind = 0  # all spans so far end here
    for ids in tool_ids:
        inner = ids[EDGE_TOKENS:-EDGE_TOKENS].astype(np.int32)
        start = _find(haystack, inner.tobytes(), behind) if len(ids) >= FEWEST_TOKENS else None
        if start is None:
            continue
        before = prompt_ids[max(behind, start - EDGE_TOKENS) : start]
        after = prompt_ids[start + len(inner) : start + len(inner) + EDGE_TOKENS]
        first = start - _agreeing(before[::-1], ids[:EDGE_TOKENS][::-1])
        behind = start + len(inner) + _agreeing(after, ids[-EDGE_TOKENS:])
        spans.append(SourceSpan(kind="tool", start=first, stop=behind))
    return tuple(spans)


def _find(haystack: bytes, needle: bytes, first: int) -> int | None:
    """The token at which `needle` stands, from token `first` on."""
    at = haystack.find(needle, TOKEN_BYTES * first)
    while at >= 0 and at % TOKEN_BYTES:
        at = haystack.find(needle, at + 1)
    return at // TOKEN_BYTES if at >= 0 else None


def _agreeing(left: np.ndarray, right: np.ndarray) -> int:
    """How many leading tokens are equal."""
    size = min(len(left), len(right))
    differ = np.flatnonzero(left[:size] != right[:size])
    return int(differ[0]) if len(differ) else size
