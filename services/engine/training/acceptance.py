"""Acceptance on text the drafter has not learned from, counted as rounds would."""

from dataclasses import dataclass

import numpy as np


@dataclass
class Acceptance:
    depths: int
    rounds: int = 0
    tokens: int = 0
    accepted: np.ndarray | None = None  # [depths], rounds that accepted more than so many

    def walk(self, learnable: np.ndarray, right: np.ndarray) -> None:
        """One row. `learnable` bool [L]; `right` bool [depths, L]: the draft of that depth for the
        token at this place was the token."""
        if self.accepted is None:
            self.accepted = np.zeros(self.depths, dtype=np.int64)
        place, end = 0, len(learnable) - self.depths
        while place < end:
            if not learnable[place : place + self.depths + 1].all():
                place += 1
                continue
            hits = 0
            while hits < self.depths and right[hits, place + hits]:
                self.accepted[hits] += 1
                hits += 1
            self.rounds += 1
            self.tokens += hits + 1
            place += hits + 1

    @property
    def tokens_a_round(self) -> float:
        return self.tokens / max(1, self.rounds)

    @property
    def by_depth(self) -> list[float]:
        """Share of all rounds that accepted each depth."""
        if self.accepted is None:
            return [0.0] * self.depths
        return [round(float(n) / max(1, self.rounds), 3) for n in self.accepted]
