"""The best any copy drafter could do: in hindsight, the longest copy there is at each round."""

from collections.abc import Sequence

import numpy as np

from bench.replay.tasks import Task
from shared.matching.contexts import BOUNDARY


class HindsightOracle:
    """Knows the output; may copy from anywhere in `sources` or in the output committed so far.

    Taking the longest copy each time is optimal: what is accepted later can only start later.
    """

    def __init__(self, width: int) -> None:
        self.name = f"hindsight oracle/{width}"
        self._width = width
        self._output = np.empty(0, np.int32)
        self._text = np.empty(0, np.int32)
        self._prompt_len = 0
        self._positions: dict[int, np.ndarray] = {}

    def begin(self, task: Task) -> None:
        self.begin_with(task, ())

    def begin_with(self, task: Task, sources: Sequence[np.ndarray]) -> None:
        """`sources`: int32 arrays beside the prompt, boundaries as -1."""
        edge = np.array([BOUNDARY], np.int32)
        self._output = task.output_ids
        self._prompt_len = len(task.prompt_ids)
        parts = [part for source in sources for part in (source, edge)]
        self._text = np.concatenate([*parts, task.prompt_ids, task.output_ids])
        order = np.argsort(self._text, kind="stable")
        tokens, first = np.unique(self._text[order], return_index=True)
        groups = np.split(order, first[1:])
        self._positions = dict(zip(tokens.tolist(), groups, strict=True))

    def propose(self, ids: np.ndarray, room: int) -> Sequence[int]:
        done = len(ids) - self._prompt_len
        wanted = self._output[done : done + min(self._width, room)]
        if not len(wanted):
            return ()
        committed = len(self._text) - len(self._output) + done
        # copies start before the end of what is committed; a loop may run on past it
        starts = self._positions.get(int(wanted[0]), np.empty(0, np.int64))
        starts = starts[: np.searchsorted(starts, committed)]
        length = 0
        while len(starts) and length < len(wanted):
            starts = starts[self._text[starts + length] == wanted[length]]
            length += bool(len(starts))
        copied: list[int] = wanted[:length].tolist()
        return copied

    def observe(self, ids: np.ndarray, drafted: int, accepted: int) -> None:
        """It knows."""
