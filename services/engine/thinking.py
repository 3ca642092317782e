"""The thinking budget: reasoning that grows too long is closed by forced tokens.

A forced token stands in the place of the target's draw, so drafts are judged against it like
against any other, and the text does not depend on what was drafted.
"""

from collections.abc import Iterator, Sequence
from copy import copy

from shared.messages import ThinkingLimit


class ThinkingBudget:
    def __init__(self, limit: ThinkingLimit) -> None:
        self._limit = limit
        self._inside = limit.is_open
        self._used = 0
        self._forced = 0  # of `forced_ids`, how many stand already

    def observe(self, token_ids: Sequence[int]) -> None:
        """Committed output."""
        for token_id in token_ids:
            self._take(token_id)

    def over(self, draws: Iterator[int]) -> Iterator[int]:
        """The tokens of a round: `draws`, with the closing tokens where the budget has run out."""
        ahead = copy(self)
        for draw in draws:
            forced = ahead._next_forced(draw)
            token = draw if forced is None else forced
            ahead._take(token)
            yield token

    def _next_forced(self, draw: int) -> int | None:
        """None within the budget, and where the target closes its reasoning by itself."""
        if not self._inside or self._used < self._limit.budget_tokens:
            return None
        if not self._forced and draw == self._limit.end_id:
            return None
        return self._limit.forced_ids[self._forced]

    def _take(self, token_id: int) -> None:
        if not self._inside:
            self._inside = token_id == self._limit.start_id
            return
        self._forced += self._used >= self._limit.budget_tokens
        self._used += 1
        if token_id == self._limit.end_id:
            self._inside = False
            self._forced = 0
