"""A running server's record of a request that ended there."""

import http.client
import json
import urllib.error
import urllib.parse
import urllib.request
from typing import Any

from shared.errors import ConfigError

FETCH_S = 10.0
ERROR_BYTES = 10_000


def fetch(url: str, request_id: str, api_key: str | None) -> dict[str, Any]:
    """Raises ConfigError: the record cannot be had."""
    name = urllib.parse.quote(request_id, safe="")
    try:
        asked = urllib.request.Request(f"{url.rstrip('/')}/ninfer/requests/{name}")
        if api_key:
            asked.add_header("Authorization", f"Bearer {api_key}")
        with urllib.request.urlopen(asked, timeout=FETCH_S) as reply:
            record = json.load(reply)
    except urllib.error.HTTPError as exc:
        with exc:
            raise ConfigError(_refusal(url, request_id, exc)) from exc
    except (OSError, ValueError, http.client.HTTPException) as exc:
        raise ConfigError(f"no record from {url}: {exc}") from exc
    if not isinstance(record, dict) or "drafts" not in record:
        raise ConfigError(f"{url} answered no record; is it a ninfer server, with /v1 at its end?")
    return record


def _refusal(url: str, request_id: str, answer: urllib.error.HTTPError) -> str:
    message = _message(answer)
    if message is None:
        return f"{url} answered {answer.code}; is it a ninfer server, with /v1 at its end?"
    if answer.code == http.HTTPStatus.NOT_FOUND and message.startswith("no record of request"):
        return (
            f"{url} has no record of request '{request_id}': "
            "a server keeps only its last --draft-records ended requests"
        )
    return f"{url} answered {answer.code}: {message}"


def _message(answer: urllib.error.HTTPError) -> str | None:
    """The sentence in an error body of ninfer's form."""
    try:
        message = json.loads(answer.read(ERROR_BYTES))["error"]["message"]
    except (OSError, ValueError, KeyError, TypeError, http.client.HTTPException):
        return None
    return message if isinstance(message, str) else None
