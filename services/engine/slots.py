"""Who holds which KV slot, and what a free slot still holds of its last owner."""

from dataclasses import dataclass, field

import numpy as np


def _nothing() -> np.ndarray:
    return np.empty(0, np.int32)


@dataclass
class Slot:
    """`tokens` and `salt` say whose KV lies at [0, len(tokens)) while nobody owns the slot."""

    number: int
    owner: str | None = None
    tokens: np.ndarray = field(default_factory=_nothing)  # int32 [n]
    salt: str = ""
    given_back: int = 0  # the how-manieth return this was; 0: never used


class SlotPool:
    """`capacity` KV slots; each is free or has one owner."""

    def __init__(self, capacity: int) -> None:
        self._slots = [Slot(number) for number in range(capacity)]
        self._returns = 0

    @property
    def free(self) -> list[Slot]:
        """Least recently used first; one that was never used comes before all others."""
        free = [slot for slot in self._slots if slot.owner is None]
        return sorted(free, key=lambda slot: slot.given_back)

    def take(self, slot: Slot, request_id: str) -> None:
        """The caller has chosen among `free`; from now on the owner knows what the slot holds."""
        assert slot.owner is None, f"slot {slot.number} is held by {slot.owner}"
        slot.owner = request_id
        slot.tokens = _nothing()

    def give_back(self, number: int, request_id: str, tokens: np.ndarray, salt: str) -> None:
        """`tokens`: those whose KV is in place and may be read by a later request."""
        slot = self._slots[number]
        assert slot.owner == request_id, f"slot {number} is not held by {request_id}"
        self._returns += 1
        slot.owner = None
        slot.tokens = tokens
        slot.salt = salt
        slot.given_back = self._returns

    def check(self, held: dict[str, int]) -> None:
        """Every owner in the pool is in `held` (request id to slot) and the reverse."""
        owners = {slot.owner: slot.number for slot in self._slots if slot.owner is not None}
        assert owners == held, f"slots are {owners}, requests hold {held}"
        assert all(not len(slot.tokens) for slot in self._slots if slot.owner is not None)
