"""All open requests: waiting in order of arrival, running in order of admission."""

from collections import OrderedDict
from collections.abc import Iterator

from services.engine.request import Request
from services.engine.slots import SlotPool


class RequestTable:
    """Owns the KV slots: a request holds one exactly while it runs."""

    def __init__(self, slots: int) -> None:
        self._slots = SlotPool(slots)
        self._waiting: OrderedDict[str, Request] = OrderedDict()
        self._running: OrderedDict[str, Request] = OrderedDict()

    @property
    def waiting(self) -> tuple[Request, ...]:
        return tuple(self._waiting.values())

    @property
    def running(self) -> tuple[Request, ...]:
        return tuple(self._running.values())

    def __len__(self) -> int:
        return len(self._waiting) + len(self._running)

    def __contains__(self, request_id: str) -> bool:
        return request_id in self._waiting or request_id in self._running

    def __iter__(self) -> Iterator[Request]:
        yield from self.running
        yield from self.waiting

    def get(self, request_id: str) -> Request | None:
        return self._running.get(request_id) or self._waiting.get(request_id)

    def add(self, request: Request) -> None:
        assert request.request_id not in self
        self._waiting[request.request_id] = request

    def admit(self, now_s: float) -> None:
        """Gives free slots to those who wait longest."""
        while self._waiting and self._slots.free:
            request_id, request = self._waiting.popitem(last=False)
            request.slot = self._slots.take(request_id)
            request.tally.started_s = now_s
            self._running[request_id] = request

    def remove(self, request: Request) -> None:
        """Frees the request's KV, once."""
        if self._waiting.pop(request.request_id, None) is not None:
            return
        del self._running[request.request_id]
        assert request.slot is not None
        self._slots.give_back(request.slot, request.request_id)
        request.slot = None

    def check(self) -> None:
        held = {r.request_id: r.slot for r in self._running.values() if r.slot is not None}
        assert len(held) == len(self._running), "a running request has no slot"
        assert all(r.slot is None for r in self._waiting.values()), "a waiting request has a slot"
        self._slots.check(held)
