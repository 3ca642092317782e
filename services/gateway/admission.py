"""How many requests may be open at once."""

from services.gateway.engine_link import EngineLink
from shared.errors import BadParameter, EngineDead, Overloaded, ShuttingDown
from shared.messages import EngineReady


class Admission:
    """Counts requests, each of their choices, from when their body is there until the engine's
    last word on them."""

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

    def check(self, places: int = 1) -> EngineReady:
        """The engine that serves now, if it has so much room. Takes no place.

        Raises:
            EngineDead: there is none, or the server is shutting down.
            Overloaded: as many requests are open as it runs and queues.
        """
        engine = self._link.ready
        if self._closed:
            raise ShuttingDown("the server is shutting down")
        if engine is None:
            raise EngineDead("the engine is loading or restarting; try again")
        if self.open + places > _capacity(engine):
            raise Overloaded("too many requests are open; try again")
        return engine

    def enter(self) -> EngineReady:
        """As `check`, and takes a place. Raises EngineDead, Overloaded."""
        engine = self.check()
        self.open += 1
        return engine

    def enter_choices(self, count: int) -> None:
        """The places of a request's other choices, all or none: one is taken already.

        Raises:
            BadParameter: it asks for more than the server ever takes.
            EngineDead, Overloaded: as `check`.
        """
        if count == 1:
            return
        engine = self._link.ready
        if engine is not None and count > _capacity(engine):
            raise BadParameter(
                f"this server runs and queues at most {_capacity(engine)} choices at once",
                param="n",
            )
        self.check(count - 1)
        self.open += count - 1

    def leave(self, places: int = 1) -> None:
        assert self.open >= places
        self.open -= places


def _capacity(engine: EngineReady) -> int:
    return engine.limits.max_concurrency + engine.limits.max_waiting
