"""How a model writes tool calls: what its two forms have in common."""

from typing import Literal, NamedTuple, Protocol

from services.gateway.output.events import Event


class Opening(NamedTuple):
    """What stands at a `<tool_call>`."""

    verdict: Literal["call", "text", "undecided"]
    end: int  # of a call: where its body begins; of text: up to where it is surely text


class Dialect(Protocol):
    """Calls of tools that the request knows. A call of any other is text."""

    def opening(self, text: str, at: int, *, final: bool) -> Opening:
        """`final`: the output ends with this text."""
        ...

    def start(self) -> list[Event]:
        """Begins the call whose opening was just found."""
        ...

    def feed(self, text: str, at: int, events: list[Event]) -> int:
        """Reads on inside the call; up to where the text is used up."""
        ...

    @property
    def is_open(self) -> bool:
        """Inside a call, or in what closes it."""
        ...

    def cut(self, text: str, at: int, events: list[Event]) -> int:
        """The output ends inside the call: closes it so that its arguments are valid JSON."""
        ...
