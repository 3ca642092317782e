"""One request's lines of the log, written from what each of its choices reports."""

from typing import Any

from services.gateway.outcome import Outcome, together
from services.gateway.request_log import GenerationLog


class ChoicesLog:
    """One `request_start` and one end: `request_done` once every choice has ended, or the first
    failure of any at once."""

    def __init__(self, log: GenerationLog) -> None:
        self._log = log
        self._open: set[int] = set()
        self._outcomes: dict[int, Outcome] = {}
        self._request: dict[str, Any] | None = None  # None: none has started
        self._has_ended = False

    def of(self, index: int) -> "ChoiceLog":
        """A choice that will report. The request does not end before it."""
        self._open.add(index)
        return ChoiceLog(self, index)

    def drop(self, index: int) -> None:
        """It will not begin."""
        self._open.discard(index)
        self._end_if_all_have()

    def start(self, request: dict[str, Any]) -> None:
        if self._request is None:
            self._request = request
            self._log.request_start(request)

    def done(self, index: int, outcome: Outcome) -> None:
        self._open.discard(index)
        self._outcomes[index] = outcome
        self._end_if_all_have()

    def error(self, index: int, request: dict[str, Any], phase: str, error: dict[str, Any]) -> None:
        self._open.discard(index)
        if not self._has_ended:
            self._has_ended = True
            self._log.request_error(request, phase, error)

    def _end_if_all_have(self) -> None:
        if self._open or self._has_ended or self._request is None:
            return
        self._has_ended = True
        ordered = [self._outcomes[index] for index in sorted(self._outcomes)]
        self._log.request_done(self._request, together(ordered))


class ChoiceLog:
    """What a `Generation` writes into, for one choice of several."""

    def __init__(self, shared: ChoicesLog, index: int) -> None:
        self._shared = shared
        self._index = index

    def request_start(self, request: dict[str, Any]) -> None:
        self._shared.start(request)

    def request_done(self, request: dict[str, Any], outcome: Outcome) -> None:
        self._shared.done(self._index, outcome)

    def request_error(self, request: dict[str, Any], phase: str, error: dict[str, Any]) -> None:
        self._shared.error(self._index, request, phase, error)
