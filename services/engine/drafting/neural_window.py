"""How many neural drafts a request's round asks for, and whether any.

A neural draft costs the drafter's step and a column of the target's pass. Whether it is worth that
is learned from the request's own rounds: the share of drafts of each depth that were accepted where
the one before was. A drafter that is never right is not asked any more, but for a probe now and
then. Only past rounds are counted, so the choice never depends on the draws it is about.
"""

from collections.abc import Sequence

from services.engine.drafting.evidence import Width

# A depth starts as if right in this share of so many rounds, which fade like all others.
START_SHARE, START_ROUNDS = 0.6, 2.0
# Of what is known of a depth, each time it is tried. A drafter that is never right is given up
# within 29 rounds where a column costs 0.7 percent of a pass, sooner where it costs more.
DECAY = 0.92
FIRST_PROBE, LAST_PROBE = 32, 512  # rounds without neural drafts; it doubles while probes fail


class NeuralWindow:
    def __init__(self, width: int, *, adaptive: bool) -> None:
        """Without `adaptive` all `width` drafts are asked for, or none."""
        self._width = width
        self._adaptive = adaptive
        self._tried = [START_ROUNDS] * width
        self._right = [START_ROUNDS * START_SHARE] * width
        self._idle = 0
        self._patience = FIRST_PROBE
        self._probing = False

    def choose(self, room: int, costs: Sequence[float], rate: float) -> Width:
        """The width of the most value, at most `room`. `costs[n]` is what n drafts cost, drafting
        and columns together, and `rate` how many tokens that cost usually yields."""
        widest = min(self._width, room)
        expected, reached = 0.0, 1.0
        best = Width(0, 0.0)
        for depth in range(widest):
            reached *= self._right[depth] / self._tried[depth]
            expected += reached
            value = expected - rate * costs[depth + 1]
            if (self._adaptive or depth + 1 == widest) and (value >= best.value):
                best = Width(depth + 1, value)
        return best

    def expected(self, drafts: int) -> float:
        """How many of so many drafts will be accepted."""
        expected, reached = 0.0, 1.0
        for depth in range(min(drafts, self._width)):
            reached *= self._right[depth] / self._tried[depth]
            expected += reached
        return expected

    def is_probe_due(self) -> bool:
        """The drafter has not been asked for a while: the text may have come to suit it."""
        self._probing = self._idle >= self._patience
        return self._probing

    def skip(self) -> None:
        """A round without neural drafts."""
        self._idle += 1

    def observe(self, drafted: int, accepted: int) -> None:
        """A round verified `drafted` neural drafts."""
        self._idle = 0
        if self._probing:
            longer = min(2 * self._patience, LAST_PROBE)
            self._patience = FIRST_PROBE if accepted else longer
            self._probing = False
        for depth in range(min(drafted, self._width)):
            self._tried[depth] = DECAY * self._tried[depth] + 1
            self._right[depth] = DECAY * self._right[depth] + (accepted > depth)
            if accepted <= depth:
                break
