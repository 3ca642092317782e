"""What every protocol must do: read a body, write a reply."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol, TypeVar, runtime_checkable

from services.gateway.choices import Piece
from services.gateway.output.events import Event
from services.gateway.request import Request
from services.gateway.result import Progress, Result
from shared.errors import NinferError

News = TypeVar("News")  # Event, or Piece of an answer with several choices


class Head(NamedTuple):
    """What a reply knows from the start; of several choices, each has one."""

    request_id: str
    model_id: str
    prompt_tokens: int
    progress: Callable[[], Progress]
    choice: int = 0


class Reply(Protocol[News]):
    """One request's answer. A stream is `opening`, then `events` and `heartbeat` in any number,
    then `terminal` or `failed`."""

    def opening(self) -> bytes: ...

    def events(self, events: list[News]) -> bytes: ...

    def heartbeat(self) -> bytes: ...

    def terminal(self, result: Result, before: bytes) -> bytes:
        """The group of terminal events; `before` (SSE comments or nothing) stands before it."""
        ...

    def failed(self, error: NinferError) -> bytes: ...

    def body(self, events: list[News], result: Result, ninfer: dict[str, Any]) -> dict[str, Any]:
        """The whole answer, with the server's own object in it as `ninfer`. Neighbouring events
        may be pieces of one text."""
        ...


class ProtocolHandler(Protocol):
    name: str  # in the log
    id_prefix: str  # of the request id, which is the answer's id

    def parse(self, raw: bytes) -> Request:
        """Raises BadParameter, which names the field."""
        ...

    def reply(self, request: Request, head: Head) -> Reply[Event]: ...

    def error(self, error: NinferError, request_id: str) -> dict[str, Any]: ...


@runtime_checkable
class ChoicesHandler(ProtocolHandler, Protocol):
    """A protocol whose requests may ask for several choices."""

    def choices(self, request: Request, heads: Sequence[Head]) -> Reply[Piece]: ...
