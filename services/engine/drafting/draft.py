"""What a drafter proposes, and the interface that all drafters share."""

from dataclasses import dataclass
from typing import Protocol

from services.engine.ledger import Ledger
from shared.messages import SourceKind


@dataclass(frozen=True)
class Draft:
    token_ids: tuple[int, ...]  # at least one
    kind: SourceKind  # where the copy came from


class Drafter(Protocol):
    """One per engine; keeps its own state by request id."""

    def propose(self, request_id: str, ledger: Ledger, room: int) -> Draft | None:
        """At most `room` >= 1 tokens that may follow the ledger; None leaves the row without."""

    def observe(self, request_id: str, ledger: Ledger) -> None:
        """The ledger grew by what a round committed."""

    def release(self, request_id: str) -> None:
        """The request has ended. Unknown ids are fine."""
