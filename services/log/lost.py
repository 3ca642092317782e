"""Requests whose gateway died before it could write how they ended."""

from collections.abc import Iterable, Iterator

from services.gateway.log_lines import (
    AnyLine,
    Error,
    RequestDone,
    RequestError,
    RequestStart,
)

GATEWAY_DIED = Error(
    status=0,
    type="GatewayDied",
    code="gateway_died",
    param=None,
    reason="the log has no end of it, and the next gateway has started",
)


def with_lost(lines: Iterable[tuple[AnyLine, bytes]]) -> Iterator[tuple[AnyLine, bytes]]:
    """Adds an error, without bytes, for each start that has no end when another gateway begins."""
    instance = None
    started: dict[str, RequestStart] = {}
    for line, raw in lines:
        if line.server_instance_id != instance:
            for start in started.values():
                yield _lost(start, line.timestamp_unix_ms), b""
            started = {}
            instance = line.server_instance_id
        if isinstance(line, RequestStart):
            started[line.request.request_id] = line
        elif isinstance(line, RequestDone | RequestError):
            started.pop(line.request.request_id, None)
        yield line, raw


def _lost(start: RequestStart, found_ms: int) -> RequestError:
    return RequestError(
        artifact_type=start.artifact_type,
        schema_version=start.schema_version,
        timestamp_unix_ms=found_ms,
        server_instance_id=start.server_instance_id,
        request=start.request,
        phase="generate",
        error=GATEWAY_DIED,
    )
