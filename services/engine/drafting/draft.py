"""What a drafter proposes."""

from typing import Literal, NamedTuple

from shared.messages import DraftKind


class Draft(NamedTuple):
    """A *bridge* starts with tokens of the neural drafter and goes on with a copy."""

    token_ids: tuple[int, ...]  # at least one
    kind: DraftKind  # where the copy came from; without one, as `neural_kind`
    position: int = 0  # of the first copied token, in its source
    match_length: int = 0  # tokens of the ledger that stand before it there
    neural: int = 0  # how many leading tokens are the neural drafter's, or a lookup's
    neural_kind: Literal["lookup", "neural"] = "neural"

    def cut(self, length: int) -> "Draft | None":
        """Its first `length` tokens; None if that is none."""
        if length >= len(self.token_ids):
            return self
        if length < 1:
            return None
        return self._replace(token_ids=self.token_ids[:length], neural=min(self.neural, length))

    @property
    def copied(self) -> int:
        return len(self.token_ids) - self.neural
