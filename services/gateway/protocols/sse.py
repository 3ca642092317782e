"""Server-sent events: one line of JSON each, never an `id`, which breaks clients."""

from typing import Any

import msgspec

_encoder = msgspec.json.Encoder()

DONE = b"data: [DONE]\n\n"


def data(payload: Any) -> bytes:
    """An event without a name."""
    return b"".join((b"data: ", _encoder.encode(payload), b"\n\n"))


def named(payload: dict[str, Any]) -> bytes:
    """An event whose name is its payload's type."""
    name = payload["type"].encode()
    return b"".join((b"event: ", name, b"\ndata: ", _encoder.encode(payload), b"\n\n"))
