"""`Hit`: one match inside one index."""

from typing import NamedTuple


class Hit(NamedTuple):
    """Hits of one index compare by preference: longer match, more to copy, more recent."""

    length: int  # 1..64 tokens of the query that match
    available: int  # tokens that may be copied, at least 1, clipped at the limit asked for
    position: int  # where the continuation starts
