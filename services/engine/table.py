"""All open requests: waiting in order of arrival, running in order of admission."""

from collections import OrderedDict
from collections.abc import Iterator

from services.engine.prefix import PrefixCache
from services.engine.request import Request


class RequestTable:
    """Owns the KV slots: a request holds one exactly while it runs."""

    def __init__(self, prefixes: PrefixCache) -> None:
        self._prefixes = prefixes
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

    def admit(self, now_s: float) -> list[Request]:
        """Gives free slots to those who wait longest, and says to whom."""
        admitted = []
        while self._waiting and self._prefixes.has_room:
            request_id, request = self._waiting.popitem(last=False)
            self._prefixes.place(request, self._running.values())
            request.tally.started_s = now_s
            self._running[request_id] = request
            admitted.append(request)
        return admitted

    def remove(self, request: Request) -> None:
        """Frees the request's slot, once; its KV stays there for whoever continues it."""
        if self._waiting.pop(request.request_id, None) is not None:
            return
        del self._running[request.request_id]
        self._prefixes.give_back(request)

    def check(self) -> None:
        held = {r.request_id: r.slot for r in self._running.values() if r.slot is not None}
        assert len(held) == len(self._running), "a running request has no slot"
        assert all(r.slot is None for r in self._waiting.values()), "a waiting request has a slot"
        self._prefixes.check(held)
