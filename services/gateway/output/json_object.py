"""One JSON object as it streams in: passed on as valid JSON, however the input is cut or ends.

Models slip in small ways that a strict client would reject: raw newlines in strings, Python's
literals, a comma before a closing bracket, invalid escapes. Those are put right; what cannot be
ends the object.
"""

import json
import re
from typing import Literal

from services.gateway.output.follow import WHITESPACE

LONGEST_SCALAR = 512
LITERALS = {"True": "true", "False": "false", "None": "null"}
CLOSERS = {"{": "}", "[": "]"}

_plain = re.compile(r'[^"\\\x00-\x1f]+')
_scalar = re.compile(r"[-+.0-9A-Za-z]+")
_escape = re.compile(
    r"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"
    r'|u(?![dD][89a-fA-F])[0-9a-fA-F]{4}|["\\/bfnrt])'
)
_half = re.compile(r"\\u[0-9a-fA-F]{4}")  # of a surrogate pair
LONGEST_ESCAPE = 12

# What may come next.
Expects = Literal["key", "colon", "value", "comma", "string", "key string"]


class JsonObject:
    """`is_whole`: its last bracket came. `is_broken`: what came can be no JSON."""

    def __init__(self) -> None:
        self._stack: list[str] = []
        self._expects: Expects = "value"
        self._comma = ""  # held until something follows it
        self.is_whole = False
        self.is_broken = False

    def feed(self, text: str, at: int, out: list[str], *, final: bool) -> int:
        """Reads on from `at`; up to where the text is used up. `final`: no more will come."""
        while at < len(text) and not (self.is_whole or self.is_broken):
            if self._expects in ("string", "key string"):
                start, at = at, self._read_string(text, at, out, final)
            else:
                start = self._skip_space(text, at)
                at = self._read_token(text, start, out) if start < len(text) else start
            if at == start:
                break
        return at

    def close(self) -> str:
        """What makes valid JSON of all that was passed on."""
        end = {
            "string": '"',
            "key string": '": null',
            "colon": ": null",
            "value": "null" if self._stack and self._stack[-1] == "{" else "",
        }.get(self._expects, "")
        closers = "".join(CLOSERS[opener] for opener in reversed(self._stack))
        self._stack = []
        return end + closers

    def _skip_space(self, text: str, at: int) -> int:
        while at < len(text) and text[at] in WHITESPACE:
            at += 1
        return at

    def _read_token(self, text: str, at: int, out: list[str]) -> int:
        character = text[at]
        if self._stack and character == CLOSERS[self._stack[-1]]:
            return self._close_bracket(at, out)
        match self._expects:
            case "comma" if character == ",":
                self._comma = ", "
                self._expects = "key" if self._stack[-1] == "{" else "value"
                return at + 1
            case "colon" if character == ":":
                out.append(": ")
                self._expects = "value"
                return at + 1
            case "key" if character == '"':
                return self._open(at, out, '"', "key string")
            case "value" if character == '"' and self._stack:
                return self._open(at, out, '"', "string")
            case "value" if character == "{" or (character == "[" and self._stack):
                self._open(at, out, character, "key" if character == "{" else "value")
                self._stack.append(character)
                return at + 1
            case "value" if self._stack:
                return self._read_scalar(text, at, out)
        self.is_broken = True
        return at

    def _open(self, at: int, out: list[str], opener: str, expects: Expects) -> int:
        out.append(self._comma + opener)
        self._comma, self._expects = "", expects
        return at + 1

    def _close_bracket(self, at: int, out: list[str]) -> int:
        is_value_missing = self._expects == "value" and self._stack[-1] == "{"
        if self._expects == "colon" or is_value_missing:
            self.is_broken = True
            return at
        self._comma = ""
        out.append(CLOSERS[self._stack.pop()])
        self._expects = "comma"
        self.is_whole = not self._stack
        return at + 1

    def _read_scalar(self, text: str, at: int, out: list[str]) -> int:
        found = _scalar.match(text, at)
        if found is None or found.end() - at > LONGEST_SCALAR:
            self.is_broken = True
            return at
        if found.end() == len(text):
            return at  # it may go on; what is cut is dropped
        word = LITERALS.get(found[0], found[0])
        try:
            json.loads(word, parse_constant=_refuse)
        except ValueError:
            self.is_broken = True
            return at
        out.append(self._comma + word)
        self._comma, self._expects = "", "comma"
        return found.end()

    def _read_string(self, text: str, at: int, out: list[str], final: bool) -> int:
        plain = _plain.match(text, at)
        if plain is not None:
            out.append(plain[0])
            return plain.end()
        if text[at] == '"':
            out.append('"')
            self._expects = "colon" if self._expects == "key string" else "comma"
            return at + 1
        if text[at] != "\\":
            out.append(json.dumps(text[at])[1:-1])
            return at + 1
        found = _escape.match(text, at)
        if found is not None:
            out.append(found[0])
            return found.end()
        if len(text) - at < LONGEST_ESCAPE and '"' not in text[at + 2 :] and not final:
            return at
        return self._repair_escape(text, at, out)

    def _repair_escape(self, text: str, at: int, out: list[str]) -> int:
        following = text[at + 1 : at + 2]
        if not following:
            return len(text)
        if _half.match(text, at):
            out.append("\\ufffd")
            return at + 6
        out.append("'" if following == "'" else "\\\\")
        return at + 2 if following == "'" else at + 1


def _refuse(name: str) -> None:
    raise ValueError(f"{name} is no JSON")
