"""A histogram that costs less than a microsecond an observation: for what happens each round."""

from bisect import bisect_left
from itertools import accumulate

# Seconds; vLLM's buckets of inter_token_latency_seconds.
GAPS_S = (
    *(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75),
    *(1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0),
)


class TokenGaps:
    """Seconds between one round's tokens and the next round's, of all requests."""

    def __init__(self) -> None:
        self._counts = [0] * (len(GAPS_S) + 1)
        self.sum_s = 0.0

    def add(self, gap_s: float) -> None:
        self._counts[bisect_left(GAPS_S, gap_s)] += 1
        self.sum_s += gap_s

    def buckets(self) -> list[tuple[str, float]]:
        """As Prometheus counts them: upper bound, and how many are not above it."""
        bounds = [*map(str, GAPS_S), "+Inf"]
        return list(zip(bounds, map(float, accumulate(self._counts)), strict=True))
