"""How many requests may be open at once."""

from services.gateway.engine_link import EngineLink
from shared.errors import EngineDead, Overloaded, ShuttingDown
from shared.messages import EngineReady


class Admission:
    """Counts requests from when their body is there until the engine's last word on them."""

    def __init__(self, link: EngineLink) -> None:
        self._link = link
        self.open = 0
        self._closed = False

    @property
    def is_closed(self) -> bool:
        """The server is shutting down."""
        return self._closed

    def close(self) -> None:
        """No more requests: the server is shutting down."""
        self._closed = True

    def check(self) -> EngineReady:
        """The engine that serves now, if it has room. Takes no place.

        Raises:
            EngineDead: there is none, or the server is shutting down.
            Overloaded: as many requests are open as it runs and queues.
        """
        engine = self._link.ready
        if self._closed:
            raise ShuttingDown("the server is shutting down")
        if engine is None:
            raise EngineDead("the engine is loading or restarting; try again")
        if self.open >= engine.limits.max_concurrency + engine.limits.max_waiting:
            raise Overloaded("too many requests are open; try again")
        return engine

    def enter(self) -> EngineReady:
        """As `check`, and takes a place. Raises EngineDead, Overloaded."""
        engine = self.check()
        self.open += 1
        return engine

    def leave(self) -> None:
        assert self.open > 0
        self.open -= 1
