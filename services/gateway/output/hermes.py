"""Tool calls in JSON, as Hermes and Qwen3 write them:

    <tool_call>
    {"name": "NAME", "arguments": {...}}
    </tool_call>

Arguments stream as soon as the name is known. Older models put the arguments first; such a call is
read when it is whole. A list of calls in one `<tool_call>` works too.
"""

import json
import secrets
from typing import Any

from services.gateway.output.dialect import Opening
from services.gateway.output.events import CallArguments, CallEnd, CallStart, Event
from services.gateway.output.follow import Seen, follow
from services.gateway.output.json_object import JsonObject
from services.gateway.output.schema import Tools

CALL, CALL_END = "<tool_call>", "</tool_call>"
ARGUMENTS = ('"arguments"', '"parameters"')
MEMBERS = ('"name"', *ARGUMENTS)
LONGEST_WORD = 16  # of JSON outside strings: an error this near to the end may only be a cut
# characters of a call whose name comes last, which waits for its end
LONGEST_WAITING = 1 << 18

_decoder = json.JSONDecoder()


class HermesCalls:
    def __init__(self, tools: Tools) -> None:
        self._tools = tools
        self._found = ""
        self._whole: str | None = None  # the arguments, where the opening was the whole call
        self._arguments: JsonObject | None = None
        self._is_in_object = False  # the bracket behind the arguments is still to come
        self.is_open = False

    def opening(self, text: str, at: int, *, final: bool) -> Opening:
        seen = follow(text, at, CALL, None)
        if seen.end is None:
            is_open = seen.undecided and not final
            return Opening("undecided", at) if is_open else Opening("text", at + 1)
        in_list = follow(text, seen.end, "[", None)
        return self._object(text, at, in_list.end or seen.end, final)

    def start(self) -> list[Event]:
        self.is_open = True
        events: list[Event] = [CallStart(secrets.token_hex(12), self._found)]
        self._is_in_object = self._whole is None
        if self._whole is None:
            self._arguments = JsonObject()
            return events
        return [*events, CallArguments(self._whole), CallEnd(complete=True)]

    def feed(self, text: str, at: int, events: list[Event]) -> int:
        return self._read(text, at, events, final=False)

    def cut(self, text: str, at: int, events: list[Event]) -> int:
        at = self._read(text, at, events, final=True)
        if self._arguments is not None:
            events += [CallArguments(self._arguments.close() or "{}"), CallEnd(complete=False)]
            at = len(text)
        self._arguments, self.is_open = None, False
        return at

    def _read(self, text: str, at: int, events: list[Event], *, final: bool) -> int:
        before = None
        while self.is_open and before != (before := (at, self._is_in_object)):
            if self._arguments is not None:
                at = self._read_arguments(self._arguments, text, at, events, final)
            if self._arguments is None and self.is_open:
                at = self._close(text, at, events, final)
        return at

    def _object(self, text: str, at: int, start: int, final: bool) -> Opening:
        """What the object at `start` is, in the `<tool_call>` at `at`."""
        name = follow(text, start, "{", None, '"name"', None, ":", None, '"')
        if name.end is None:
            if name.undecided and not final:
                return Opening("undecided", at)
            return self._whole_object(text, at, start, final)
        end = text.find('"', name.end, name.end + self._tools.longest_name + 1)
        if end < 0 and len(text) <= name.end + self._tools.longest_name and not final:
            return Opening("undecided", at)
        if end < 0 or text[name.end : end] not in self._tools:
            return Opening("text", at + 1)
        value = follow(text, end + 1, None, ",", None, ARGUMENTS, None, ":", None, "{")
        if value.end is None:
            if value.undecided and not final:
                return Opening("undecided", at)
            return self._whole_object(text, at, start, final)
        self._found, self._whole = text[name.end : end], None
        return Opening("call", value.end - 1)

    def _whole_object(self, text: str, at: int, start: int, final: bool) -> Opening:
        """A call in another order, or with other arguments than an object: read at its end."""
        seen = follow(text, start, "{", None, MEMBERS)
        if seen.end is None:
            is_open = seen.undecided and not final
            return Opening("undecided", at) if is_open else Opening("text", at + 1)
        has_end = text.find(CALL_END, start, at + LONGEST_WAITING) >= 0
        is_last = final or len(text) - at >= LONGEST_WAITING  # more would change nothing
        if not has_end and not is_last:
            return Opening("undecided", at)
        try:
            call, end = _decoder.raw_decode(text, start)
        except json.JSONDecodeError as exc:
            is_cut = exc.msg.startswith("Unterminated") or len(text) - exc.pos < LONGEST_WORD
            return Opening("undecided", at) if is_cut and not is_last else Opening("text", at + 1)
        except (ValueError, RecursionError):
            return Opening("text", at + 1)
        arguments = _arguments_of(call)
        if arguments is None or call["name"] not in self._tools or end - at > LONGEST_WAITING:
            return Opening("text", at + 1)
        self._found, self._whole = call["name"], arguments
        return Opening("call", end)

    def _read_arguments(
        self, arguments: JsonObject, text: str, at: int, events: list[Event], final: bool
    ) -> int:
        out: list[str] = []
        at = arguments.feed(text, at, out, final=final)
        if arguments.is_broken:
            out.append(arguments.close())
            self.is_open = False  # what goes on is no part of a call: text
        events.append(CallArguments("".join(out)))
        if arguments.is_broken or arguments.is_whole:
            events.append(CallEnd(complete=arguments.is_whole))
            self._arguments = None
        return at

    def _close(self, text: str, at: int, events: list[Event], final: bool) -> int:
        """Behind a call's arguments: what closes it, or the next call of a list."""
        if self._is_in_object:
            bracket = follow(text, at, None, "}")
            self._is_in_object = bracket.undecided and not final
            return self._end(text, at, bracket, final)
        closed = follow(text, at, None, CALL_END)
        listed = follow(text, at, None, "]", None, CALL_END)
        if closed.end is not None or listed.end is not None:
            self.is_open = False
            return closed.end or listed.end or at
        comma = follow(text, at, None, ",", None)
        start = follow(text, comma.end or at, None, "{")
        another = Opening("text", at)
        if start.end is not None:
            another = self._object(text, at, start.end - 1, final)
            if another.verdict == "call":
                events += self.start()
                return another.end
        waits = any(seen.undecided for seen in (closed, listed, comma, start))
        if final or not (waits or another.verdict == "undecided"):
            self.is_open = False
            # only the end of the markup is missing
            return len(text) if final and _is_end(text[at:].strip()) else at
        return at

    def _end(self, text: str, at: int, bracket: Seen, final: bool) -> int:
        if bracket.end is not None:
            return bracket.end
        if not bracket.undecided:
            self.is_open = False
        return at


def _is_end(rest: str) -> bool:
    return CALL_END.startswith(rest.removeprefix("]").strip())


def _arguments_of(call: Any) -> str | None:
    """The JSON text of a call's arguments; None if it is no call."""
    if not isinstance(call, dict) or not isinstance(call.get("name"), str):
        return None
    arguments = call.get("arguments", call.get("parameters"))
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments)
        except (ValueError, RecursionError):
            return None
    if arguments is None:
        arguments = {}
    return json.dumps(arguments, ensure_ascii=False) if isinstance(arguments, dict) else None
