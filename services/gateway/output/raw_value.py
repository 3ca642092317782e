"""One argument that the model wrote as raw text, as it becomes JSON."""

import json
from typing import Any

import msgspec

from services.gateway.output.events import CallArguments, Event
from services.gateway.output.schema import Kind

LITERALS = {
    "null": "null",
    "None": "null",
    "true": "true",
    "True": "true",
    "false": "false",
    "False": "false",
}
NULLS = ("null", "None")


class RawValue:
    """Text streams on as the inside of a JSON string; what must be parsed waits for its end.

    One newline at each side is layout. `is_dropped`: reads, and gives nothing.
    """

    def __init__(self, key: str, kind: Kind, *, is_first: bool, is_dropped: bool) -> None:
        self._opening = f"{'{' if is_first else ', '}{quoted(key)}: "
        self._kind = kind
        self._is_dropped = is_dropped
        self._begun = False  # the newline in front is gone
        self._newline = ""  # the last one, which may be layout
        self._waiting: list[str] = []
        self._is_json = kind == "parsed"  # waits for its end
        self._is_streaming = kind == "string"
        self._is_opened = False

    def feed(self, text: str) -> list[Event]:
        if not text or self._is_dropped:
            return []
        if not self._begun:
            self._begun = True
            text = text.removeprefix("\n")
        text = self._newline + text
        self._newline = "\n" if text.endswith("\n") else ""
        text = text.removesuffix("\n")
        if self._is_streaming:
            return self._stream(text)
        self._waiting.append(text)
        if self._is_json or not self._decide("".join(self._waiting)):
            return []
        return self._stream("".join(self._waiting))

    def close(self) -> list[Event]:
        if self._is_dropped:
            return []
        if self._is_streaming:
            return [*self._stream(""), CallArguments('"')]
        text = "".join(self._waiting)
        value = None
        if self._is_json:
            value = _json(text, any_type=self._kind == "parsed")
        elif self._kind == "nullable" and text in NULLS:
            value = "null"
        return [CallArguments(self._opening + (value or quoted(text)))]

    def cut(self) -> list[Event]:
        """The output ends inside the value."""
        if self._is_dropped or not self._is_json:
            return self.close()
        value = _json("".join(self._waiting), any_type=self._kind == "parsed")
        return [CallArguments(self._opening + (value or "null"))]

    def _decide(self, text: str) -> bool:
        """Whether `text` starts a string for certain; else it waits for more."""
        if self._kind == "nullable":
            self._is_streaming = not any(null.startswith(text) for null in NULLS)
        elif text.strip():
            self._is_json = text.lstrip()[0] in "{["
            self._is_streaming = not self._is_json
        return self._is_streaming

    def _stream(self, text: str) -> list[Event]:
        escaped = quoted(text)[1:-1]
        if not self._is_opened:
            self._is_opened = True
            escaped = f'{self._opening}"{escaped}'
        return [CallArguments(escaped)] if escaped else []


def quoted(text: str) -> str:
    return msgspec.json.encode(text).decode()


def _json(text: str, *, any_type: bool) -> str | None:
    """JSON text if `text` is one, also with Python's literals; else None."""
    text = text.strip()
    if any_type and text in LITERALS:
        return LITERALS[text]
    try:
        value: Any = json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return None
    return text if any_type or isinstance(value, dict | list) else None


def _refuse(name: str) -> None:
    raise ValueError(f"{name} is no JSON")
