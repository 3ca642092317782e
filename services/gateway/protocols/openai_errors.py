"""The error shape of OpenAI's protocols."""

from typing import Any

from shared.errors import NinferError


def error_body(error: NinferError, request_id: str = "") -> dict[str, Any]:
    """The same for every request; `request_id` is in the header x-request-id."""
    kind = "invalid_request_error" if error.status < 500 else "server_error"
    if error.status == 429:
        kind = "rate_limit_error"
    return {
        "error": {
            "message": error.message,
            "type": kind,
            "param": error.param,
            "code": error.code,
        }
    }
