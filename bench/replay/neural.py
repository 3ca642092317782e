"""A stand-in for a neural drafter: each of its tokens is right with a fixed probability."""

from collections.abc import Sequence

import numpy as np

from bench.replay.tasks import Task


class CoinDrafter:
    """Proposes `width` tokens at any position; the coin of a position is the same in each run."""

    def __init__(self, width: int = 3, probability: float = 0.75) -> None:
        self.width = width
        self._probability = probability
        self._tokens: list[int] = []
        self._prompt_len = 0

    def begin(self, task: Task) -> None:
        seed = int(task.output_ids.astype(np.int64).sum()) + len(task.prompt_ids)
        right = np.random.default_rng(seed).random(len(task.output_ids)) < self._probability
        # a wrong token is some other id; the ids of special tokens are low, so none is met
        wrong = np.where(task.output_ids > 1000, task.output_ids - 1, task.output_ids + 1)
        self._tokens = np.where(right, task.output_ids, wrong).tolist()
        self._prompt_len = len(task.prompt_ids)

    def propose(self, ids: np.ndarray, room: int) -> Sequence[int]:
        done = len(ids) - self._prompt_len
        return self._tokens[done : done + min(self.width, room)]
