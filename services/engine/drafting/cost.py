"""What a round costs by its columns, in units of a round with one column.

It differs wildly by backend: on a CPU with matrix tiles 64 columns cost 1.3 times one, elsewhere
8 times. So the curve is measured at warm-up and follows the rounds that were really run. Attention
adds to it: what the columns attend to, at a price a token that is measured at warm-up too. On a
CPU without tiles it makes a column behind 8,000 tokens several times as dear as behind none.
"""

from bisect import bisect_right
from collections.abc import Mapping, Sequence

# A moment's load may not move the curve much at once: 0.05 forgets half of a change after 14
# rounds of about that width.
FOLLOW = 0.05
# Prefill makes passes far wider than any draft, which say nothing about the widths in question.
MOST_BEHIND = 2
MOST_MOVED = 2.0  # a single round counts at most this factor off the curve
CONTEXT_STEP = 256  # tokens; contexts within one are taken for the same


class RoundCost:
    """Piecewise linear between `points`; the same slope goes on behind the last one."""

    def __init__(
        self, points: Mapping[int, float], *, follows: bool, per_attended: float = 0.0
    ) -> None:
        """`points`: columns -> cost without context, for 1 and at least one more; any unit.
        `per_attended`: what a column adds for each token that it attends to, in the same unit."""
        self._columns = sorted(points)
        self._costs = [points[columns] for columns in self._columns]
        self._follows = follows
        self._per_attended = per_attended
        self._added: dict[tuple[int, int, int], list[float]] = {}
        if self._columns[0] != 1 or len(points) < 2 or min(self._costs) <= 0:
            raise ValueError("a cost curve needs one column, another width, and positive costs")

    @classmethod
    def linear(cls, per_column: float) -> "RoundCost":
        """1 + `per_column` for each column but the first; does not follow measurements."""
        return cls({1: 1.0, 65: 1.0 + 64 * per_column}, follows=False)

    def unit(self, context: int = 0) -> float:
        """What a pass of one column costs behind so many tokens, in the unit of the points."""
        return self._costs[0] + self._per_attended * context

    def of(self, columns: int, context: int = 0) -> float:
        """The cost of a pass of `columns` >= 1, in passes of one column."""
        attended = self._per_attended * columns * context
        return (self._at(columns) + attended) / self.unit(context)

    def added(self, columns: int, most: int, context: int = 0) -> Sequence[float]:
        """[most + 1]: what 0, 1, ... `most` further columns of one row add to a pass of `columns`
        >= 1, if they stand behind so many tokens."""
        step = context // CONTEXT_STEP if self._per_attended else 0
        key = (columns, most, step)
        known = self._added.get(key)
        if known is None:
            base, unit = self._at(columns), self.unit(step * CONTEXT_STEP)
            each = self._per_attended * step * CONTEXT_STEP
            known = [
                (max(0.0, self._at(columns + more) - base) + each * more) / unit
                for more in range(most + 1)
            ]
            self._added[key] = known
        return known

    def observe(self, columns: int, cost: float, attended: int = 0) -> None:
        """A round of `columns`, which together attended to so many tokens, cost this much, in the
        unit of the points."""
        cost -= self._per_attended * attended
        if not self._follows or cost <= 0 or columns > MOST_BEHIND * self._columns[-1]:
            return
        expected = self._at(columns)
        moved = min(max(cost / expected, 1 / MOST_MOVED), MOST_MOVED) - 1
        right = min(bisect_right(self._columns, columns), len(self._columns) - 1)
        left = right - 1
        span = self._columns[right] - self._columns[left]
        share = min(max((columns - self._columns[left]) / span, 0.0), 1.0)
        self._costs[left] *= 1 + FOLLOW * (1 - share) * moved
        self._costs[right] *= 1 + FOLLOW * share * moved
        self._added.clear()

    def _at(self, columns: int) -> float:
        right = min(bisect_right(self._columns, columns), len(self._columns) - 1)
        left = max(right - 1, 0)
        span = self._columns[right] - self._columns[left]
        slope = (self._costs[right] - self._costs[left]) / span
        return self._costs[left] + slope * (columns - self._columns[left])
