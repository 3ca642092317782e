"""How much of what surrounds the output's end also surrounds a place: told apart in one pass.

Equal matches say nothing about which place is meant. The tokens a little further back do, in any
order: an edit changes some of them and moves others.
"""

import struct
from collections.abc import Sequence

import numpy as np

from shared.matching.contexts import TOKEN_BYTES

TOKENS = 24  # before a place, and before the output's end
CONTEXT_BYTES = TOKENS * TOKEN_BYTES
FEWEST_IDS = 1024
NO_TOKEN = b"\xff"
BIG_ENDIAN = np.dtype(">u4")


class Surroundings:
    """Compares places with one output after another.

    A table has one bit for each of the output's last tokens that an id stands for, so that a
    place's bits are those of its tokens, joined. It is as long as the greatest id asked for.
    """

    def __init__(self) -> None:
        self._bits = np.zeros(FEWEST_IDS, np.uint32)

    def shared(self, query: bytes, contexts: Sequence[bytes | bytearray]) -> list[int]:
        """[contexts]: how many of the last `TOKENS` tokens of `query` (see `query_bytes`)
        stand somewhere in each context, which are at most as long."""
        wanted = _ids(query[:CONTEXT_BYTES])
        table = self._table_for(max(wanted))
        bits = table.data
        for i_token, token in enumerate(wanted):
            bits[token] |= 1 << i_token
        standing = np.frombuffer(_padded(contexts), BIG_ENDIAN)
        # An id beyond the table reads its last entry, which is no token's.
        standing = table.take(standing, mode="clip").reshape(-1, TOKENS)
        joined: list[int] = np.bitwise_or.reduce(standing, axis=1).tolist()
        for token in wanted:
            bits[token] = 0
        return [tokens.bit_count() for tokens in joined]

    def _table_for(self, greatest: int) -> np.ndarray:
        if greatest + 1 >= len(self._bits):
            self._bits = np.zeros(2 << (greatest + 1).bit_length(), np.uint32)
        return self._bits


def _ids(context: bytes) -> Sequence[int]:
    return struct.unpack(f">{len(context) // TOKEN_BYTES}I", context)


def _padded(contexts: Sequence[bytes | bytearray]) -> bytes:
    """All of the same length, where a text begins too."""
    joined = b"".join(contexts)
    if len(joined) == CONTEXT_BYTES * len(contexts):
        return joined
    return b"".join(bytes(context).ljust(CONTEXT_BYTES, NO_TOKEN) for context in contexts)
