"""Several choices in one answer: each is written as if it were alone, under its own index."""

from collections.abc import Sequence
from typing import Any, Protocol

from services.gateway.choices import Piece
from services.gateway.output.events import Event
from services.gateway.result import Result
from shared.errors import NinferError


class ChoiceReply(Protocol):
    """One choice of a chat or text completion."""

    def opening(self) -> bytes: ...

    def events(self, events: list[Event]) -> bytes: ...

    def heartbeat(self) -> bytes: ...

    def finish(self, result: Result) -> bytes:
        """This choice has ended."""
        ...

    def closing(self, result: Result) -> bytes:
        """All have; `result` is of all together."""
        ...

    def failed(self, error: NinferError) -> bytes: ...

    def choice(self, events: list[Event], result: Result) -> dict[str, Any]:
        """As an element of `choices`."""
        ...

    def whole(
        self, choices: list[dict[str, Any]], result: Result, ninfer: dict[str, Any]
    ) -> dict[str, Any]: ...


class ChoicesReply:
    def __init__(self, choices: Sequence[ChoiceReply]) -> None:
        self._choices = choices
        self._open = list(choices)

    def opening(self) -> bytes:
        return b"".join(choice.opening() for choice in self._choices)

    def events(self, pieces: list[Piece]) -> bytes:
        return b"".join(map(self._write, pieces))

    def heartbeat(self) -> bytes:
        """Of one that is open: behind a choice's end nothing more of it may come."""
        return self._open[0].heartbeat()

    def terminal(self, result: Result, before: bytes) -> bytes:
        return before + self._choices[0].closing(result)

    def failed(self, error: NinferError) -> bytes:
        return self._choices[0].failed(error)

    def body(self, pieces: list[Piece], result: Result, ninfer: dict[str, Any]) -> dict[str, Any]:
        events: list[list[Event]] = [[] for _ in self._choices]
        results: dict[int, Result] = {}
        for piece in pieces:
            events[piece.choice] += piece.events
            if piece.result is not None:
                results[piece.choice] = piece.result
        choices = [
            choice.choice(events[index], results[index])
            for index, choice in enumerate(self._choices)
        ]
        return self._choices[0].whole(choices, result, ninfer)

    def _write(self, piece: Piece) -> bytes:
        choice = self._choices[piece.choice]
        written = choice.events(piece.events)
        if piece.result is None:
            return written
        self._open.remove(choice)
        return written + choice.finish(piece.result)
