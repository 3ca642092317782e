"""W3C Trace Context: which span of the caller a request belongs to."""

import re
from collections.abc import Mapping

TRACEPARENT = re.compile(r"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}")


def trace_of(headers: Mapping[str, str]) -> dict[str, str]:
    """For the log's request object, so that it joins with traces; nothing if it is malformed."""
    value = headers.get("traceparent", "")
    return {"traceparent": value} if TRACEPARENT.fullmatch(value) else {}
