"""Who holds which KV slot."""


class SlotPool:
    """`capacity` KV slots; each is free or has one owner. The lowest free slot is given first."""

    def __init__(self, capacity: int) -> None:
        self._owners: list[str | None] = [None] * capacity

    @property
    def free(self) -> int:
        return self._owners.count(None)

    def take(self, request_id: str) -> int:
        """The caller has checked `free`; a full pool is our own bug."""
        slot = self._owners.index(None)
        self._owners[slot] = request_id
        return slot

    def give_back(self, slot: int, request_id: str) -> None:
        assert self._owners[slot] == request_id, f"slot {slot} is not held by {request_id}"
        self._owners[slot] = None

    def check(self, held: dict[str, int]) -> None:
        """Every owner in the pool is in `held` (request id to slot) and the reverse."""
        owners = {owner: slot for slot, owner in enumerate(self._owners) if owner is not None}
        assert owners == held, f"slots are {owners}, requests hold {held}"
