"""Qwen's tool calls in XML:

    <tool_call>
    <function=NAME>
    <parameter=KEY>
    VALUE
    </parameter>
    </function>
    </tool_call>

A value is raw text; one newline on each side is layout, all other whitespace belongs to it. It ends
at `</parameter>` only where the markup goes on behind that, so that a value may speak of the
markup. What a value means is told by the tool's schema, never guessed from its look.
"""

import secrets

from services.gateway.output.dialect import Opening
from services.gateway.output.events import CallArguments, CallEnd, CallStart, Event
from services.gateway.output.follow import NO, Seen, follow
from services.gateway.output.raw_value import RawValue
from services.gateway.output.schema import Tools

CALL, CALL_END = "<tool_call>", "</tool_call>"
FUNCTION, FUNCTION_END = "<function=", "</function>"
PARAMETER, PARAMETER_END = "<parameter=", "</parameter>"
LONGEST_KEY = 256


class QwenCalls:
    def __init__(self, tools: Tools) -> None:
        self._tools = tools
        self._found = ""  # the name in the opening that was found last
        self._name = ""
        self._keys: set[str] = set()
        self._value: RawValue | None = None
        self._is_whole = False  # the last value was closed
        self._is_closing = False  # behind </function>
        self.is_open = False

    def opening(self, text: str, at: int, *, final: bool) -> Opening:
        seen = self._function(text, at, CALL, None, FUNCTION)
        if seen.undecided and not final:
            return Opening("undecided", at)
        return Opening("text", at + 1) if seen.end is None else Opening("call", seen.end)

    def start(self) -> list[Event]:
        self.is_open, self._is_closing = True, False
        self._name, self._keys, self._is_whole = self._found, set(), False
        return [CallStart(secrets.token_hex(12), self._name)]

    def feed(self, text: str, at: int, events: list[Event]) -> int:
        before = None
        while self.is_open and before != (before := (at, self._is_closing)):
            if self._value is not None:
                at = self._read_value(text, at, events, final=False)
            elif self._is_closing:
                at = self._close(text, at, events)
            else:
                at = self._read_between(text, at, events)
        return at

    def cut(self, text: str, at: int, events: list[Event]) -> int:
        if self._value is not None:
            at = self._read_value(text, at, events, final=True)
        if not self._is_closing:
            rest = text[at:].strip()
            has_end = rest.startswith(FUNCTION_END)
            # only the end of the markup is missing
            complete = has_end or (self._is_whole and FUNCTION_END.startswith(rest))
            events += self._finish(complete=complete)
        self.is_open = False
        return len(text)

    def _function(self, text: str, at: int, *parts: str | None) -> Seen:
        """The words, then a known name and `>`."""
        seen = follow(text, at, *parts)
        if seen.end is None:
            return seen
        limit = seen.end + self._tools.longest_name + 1
        end = text.find(">", seen.end, limit)
        if end < 0:
            return Seen(None, len(text) < limit)
        name = text[seen.end : end]
        if name not in self._tools:
            return NO
        self._found = name
        return Seen(end + 1, False)

    def _read_between(self, text: str, at: int, events: list[Event]) -> int:
        """Behind the function's name or a parameter."""
        parameter = follow(text, at, None, PARAMETER)
        if parameter.end is not None:
            end = text.find(">", parameter.end, parameter.end + LONGEST_KEY)
            if end >= 0:
                self._begin_value(text[parameter.end : end], events)
                return end + 1
            if len(text) < parameter.end + LONGEST_KEY:
                return at
        ending = follow(text, at, None, (FUNCTION_END, CALL_END))
        if ending.end is None and (parameter.undecided or ending.undecided):
            return at
        events += self._finish(complete=ending.end is not None)
        if ending.end is None:
            self.is_open = False  # whatever this is, it is no part of a call: text
            return at
        closed = text.startswith(CALL_END, ending.end - len(CALL_END))
        self.is_open, self._is_closing = not closed, not closed
        return ending.end

    def _begin_value(self, key: str, events: list[Event]) -> None:
        is_first = not self._keys
        kind = self._tools.kind(self._name, key)
        # a second value of one key would make the JSON ambiguous: the first counts
        self._value = RawValue(key, kind, is_first=is_first, is_dropped=key in self._keys)
        self._keys.add(key)
        self._is_whole = False

    def _read_value(self, text: str, at: int, events: list[Event], *, final: bool) -> int:
        assert self._value is not None
        start = at
        while (at := text.find("</", at)) >= 0:
            seen = self._ending(text, at, final)
            if seen.end is not None:
                events += self._value.feed(text[start:at])
                events += self._value.close()
                self._value, self._is_whole = None, True
                return seen.end
            if seen.undecided and not final:
                break
            at += 1
        if at < 0:
            may_begin = text.endswith("<", start) and not final
            at = len(text) - 1 if may_begin else len(text)
        events += self._value.feed(text[start:at])
        if final:
            events += self._value.cut()
            self._value = None
        return at

    def _ending(self, text: str, at: int, final: bool) -> Seen:
        """Where a value ends: before markup that goes on, or before the end of the output."""
        closed = follow(text, at, PARAMETER_END)
        if closed.end is None:
            # </parameter> forgotten
            seen = follow(text, at, FUNCTION_END, None, CALL_END)
            if seen.end is None:
                forgotten = final and text[at:].strip() == FUNCTION_END
                return (
                    Seen(at, False) if forgotten else Seen(None, closed.undecided or seen.undecided)
                )
            rest = text[seen.end :].strip()
            goes_on = follow(text, seen.end, None, CALL)
            if goes_on.end is not None or (final and not rest):
                return Seen(at, False)
            return Seen(None, goes_on.undecided)
        goes_on = follow(text, closed.end, None, (PARAMETER, FUNCTION_END, CALL_END))
        if goes_on.end is not None or (final and goes_on.undecided):
            return closed
        return Seen(None, goes_on.undecided)

    def _close(self, text: str, at: int, events: list[Event]) -> int:
        """Behind </function>: its </tool_call>, or one more function in the same."""
        seen = follow(text, at, None, CALL_END)
        if seen.end is not None:
            self.is_open = False
            return seen.end
        another = self._function(text, at, None, FUNCTION)
        if another.end is not None:
            events += self.start()
            return another.end
        if not seen.undecided and not another.undecided:
            self.is_open = False
        return at

    def _finish(self, *, complete: bool) -> list[Event]:
        return [CallArguments("}" if self._keys else "{}"), CallEnd(complete)]
