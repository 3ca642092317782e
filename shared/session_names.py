"""Names of sessions and spans: what people see, and what messages carry."""

import hashlib
from collections.abc import Iterable

import numpy as np

SPAN_ID_BYTES = 16


def public_id(key: bytes) -> str:
    """16 hexadecimal digits, the same for the same key, for logs and the session list: a key may
    hold what a client calls private."""
    return hashlib.blake2b(key, digest_size=8).hexdigest()


def span_id_of(tokens: np.ndarray) -> bytes:
    """A span's name is its content's: 128 bits of BLAKE2b, so equal names mean equal tokens."""
    content = np.ascontiguousarray(tokens, dtype="<i4").data
    return hashlib.blake2b(content, digest_size=SPAN_ID_BYTES).digest()


def join_ids(span_ids: Iterable[bytes]) -> np.ndarray:
    """uint64 [2 n]."""
    return np.frombuffer(b"".join(span_ids), "<u8")


def split_ids(joined: np.ndarray) -> list[bytes]:
    """An odd number at the end is no name and is left out."""
    raw = joined.tobytes()
    ends = range(SPAN_ID_BYTES, len(raw) + 1, SPAN_ID_BYTES)
    return [raw[end - SPAN_ID_BYTES : end] for end in ends]
