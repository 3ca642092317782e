"""The builds that wait, and the one that runs."""

import asyncio
import threading
from collections import OrderedDict
from dataclasses import dataclass, field

from shared.messages import BuildIndex


@dataclass(frozen=True)
class Build:
    message: BuildIndex
    cancelled: threading.Event = field(default_factory=threading.Event)


class Backlog:
    """Bounded: when full, the oldest waiting build makes room, whose prefill is furthest along."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._waiting: OrderedDict[str, Build] = OrderedDict()
        self._running: Build | None = None
        self._arrived = asyncio.Event()

    @property
    def waiting(self) -> tuple[str, ...]:
        """The requests whose builds wait, oldest first; the running one is not among them."""
        return tuple(self._waiting)

    def add(self, message: BuildIndex) -> str | None:
        """Returns the id of the request whose build was dropped to make room, if one was."""
        self.drop(message.request_id)
        dropped = None
        if len(self._waiting) >= self._capacity:
            dropped, _ = self._waiting.popitem(last=False)
        self._waiting[message.request_id] = Build(message)
        self._arrived.set()
        return dropped

    def drop(self, request_id: str) -> None:
        """Cancels a request's build, waiting or running. Unknown ids are fine."""
        self._waiting.pop(request_id, None)
        if self._running is not None and self._running.message.request_id == request_id:
            self._running.cancelled.set()

    def drop_all(self) -> None:
        self._waiting.clear()
        if self._running is not None:
            self._running.cancelled.set()

    async def next(self) -> Build:
        """The oldest waiting build, which then counts as running until the next call."""
        self._running = None
        while not self._waiting:
            self._arrived.clear()
            await self._arrived.wait()
        _, self._running = self._waiting.popitem(last=False)
        return self._running
