"""Who hears of a request what the request log hears."""

from typing import Any, Protocol

from shared.messages import GenerationStats


class RequestObserver(Protocol):
    """For each started request exactly one of `request_done` and `request_error`; a call that was
    refused before its start has only a `request_error`. `docs/request-log.md` has the fields of
    `request` and `error`. Nothing here may wait, or raise."""

    def request_start(self, request: dict[str, Any]) -> None: ...

    def request_done(
        self,
        request: dict[str, Any],
        reason: str,
        stats: GenerationStats,
        completion_tokens: int,
        timings: dict[str, float | None],
    ) -> None:
        """`timings`: seconds of prepare, ttft (None without text) and total."""

    def request_error(self, request: dict[str, Any], phase: str, error: dict[str, Any]) -> None: ...

    def close(self) -> None:
        """The gateway ends; this alone may wait, for a moment."""
