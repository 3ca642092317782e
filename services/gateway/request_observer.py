"""Who hears of a request what the request log hears."""

from typing import Any, Protocol

from services.gateway.outcome import Outcome


class RequestObserver(Protocol):
    """For each started request exactly one of `request_done` and `request_error`; a call that was
    refused before its start has only a `request_error`. `docs/request-log.md` has the fields of
    `request` and `error`. Nothing here may wait, or raise."""

    def request_start(self, request: dict[str, Any]) -> None: ...

    def request_done(self, request: dict[str, Any], outcome: Outcome) -> None:
        """Of all choices together, if the request asked for several."""

    def request_error(self, request: dict[str, Any], phase: str, error: dict[str, Any]) -> None: ...

    def close(self) -> None:
        """The gateway ends; this alone may wait, for a moment."""
