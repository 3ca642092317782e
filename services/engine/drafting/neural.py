"""What the router asks of a neural drafter: an MTP module, a draft model, or a benchmark's coin."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from services.engine.ledger import Ledger


class NeuralAsk(NamedTuple):
    request_id: str
    ledger: Ledger
    budget: int  # most tokens, at least 1


class NeuralDrafter(Protocol):
    width: int  # most tokens it proposes in a round

    def draft(self, asks: Sequence[NeuralAsk]) -> Sequence[Sequence[int]]:
        """For each, at most `budget` tokens behind the committed ones; may be none."""

    def cost(self, drafts: int) -> float:
        """What it takes to draft so many for one row, in the unit of the router's cost curve."""
