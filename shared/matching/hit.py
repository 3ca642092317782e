"""What one index knows about a query: its best `Hit`, or every one of its longest `Matches`."""

from typing import NamedTuple

import numpy as np


class Hit(NamedTuple):
    """Hits of one index compare by preference: longer match, more to copy, more recent."""

    length: int  # 1..64 tokens of the query that match
    available: int  # tokens that may be copied, at least 1, clipped at the limit asked for
    position: int  # where the continuation starts


# Places, up to which plain Python sorts them sooner than numpy is called.
FEW_PLACES = 64


class Matches(NamedTuple):
    """Every place where the query's longest match in one index ends."""

    length: int  # 1..64 tokens
    positions: np.ndarray  # int32 [at least 1], unordered: where a continuation would start

    @property
    def newest(self) -> int:
        positions = self.positions
        if len(positions) > FEW_PLACES:
            return int(positions.max())
        return max(positions.tolist())  # type: ignore[no-any-return]

    def newest_of(self, count: int) -> list[int]:
        """The `count` newest, from the newest down."""
        positions = self.positions
        if len(positions) > FEW_PLACES:
            positions = np.sort(positions)[-count:]
        places: list[int] = positions.tolist()
        places.sort(reverse=True)
        return places[:count]
