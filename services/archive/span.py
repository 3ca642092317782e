"""`Span`: an immutable stretch of tokens, named by its content."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

# A shorter span could never be matched by the smallest --ngram-min-match.
SHORTEST_TOKENS = 4
CHUNK_TOKENS = 16_384
# A query of 64 tokens and a draft of 65 fit into it, so a chunk's edge costs no copy.
OVERLAP_TOKENS = 256
# What a span takes beside its tokens: the objects, its id, its place in the pool's table.
# tests/archive/test_contents.py measures that the real cost is no higher.
SPAN_OVERHEAD_BYTES = 416
TOKEN_BYTES = 4
# The engine keeps what it binds: the tokens and 12 bytes of index for each. It is charged here, so
# that one option bounds the memory of both processes.
ENGINE_TOKEN_BYTES = 16


@dataclass(frozen=True, slots=True)
class Span:
    span_id: bytes  # see shared/session_names.py
    tokens: np.ndarray  # int32 [n], read-only, without boundaries

    @classmethod
    def of(cls, tokens: np.ndarray, span_id: bytes) -> "Span":
        """Copies `tokens`, which usually are a view of a whole message."""
        kept = np.array(tokens, dtype=np.int32)
        kept.flags.writeable = False
        return cls(span_id, kept)

    @property
    def nbytes(self) -> int:
        return charge_of(len(self.tokens))


def charge_of(count: int) -> int:
    """Bytes that a span of `count` tokens is charged, here and in the engine."""
    return (TOKEN_BYTES + ENGINE_TOKEN_BYTES) * count + SPAN_OVERHEAD_BYTES


def cut(tokens: np.ndarray) -> Iterator[np.ndarray]:
    """The stretches of int32 `tokens` that are worth keeping, as views: between negative ids
    (boundaries), at least SHORTEST_TOKENS long, in overlapping chunks."""
    stops = np.flatnonzero(tokens < 0)
    starts = np.concatenate(([0], stops + 1))
    ends = np.append(stops, len(tokens))
    for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
        if end - start >= SHORTEST_TOKENS:
            yield from _chunks(tokens[start:end])


def _chunks(tokens: np.ndarray) -> Iterator[np.ndarray]:
    start = 0
    while len(tokens) - start > CHUNK_TOKENS:
        yield tokens[start : start + CHUNK_TOKENS]
        start += CHUNK_TOKENS - OVERLAP_TOKENS
    yield tokens[start:]
