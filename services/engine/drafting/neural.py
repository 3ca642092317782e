"""What the router asks of a neural drafter: an MTP head, a draft model, or a benchmark's coin."""

from collections.abc import Sequence
from typing import Protocol

from services.engine.ledger import Ledger


class NeuralDrafter(Protocol):
    width: int  # most tokens it proposes in a round

    def propose(self, request_id: str, ledger: Ledger, budget: int) -> Sequence[int]:
        """At most `budget` >= 1 tokens behind the committed ones; may be none."""
