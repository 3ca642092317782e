"""Thinking, content and tool calls in one output.

Nothing is ever lost: what turns out to be no markup is text. Newlines that only lay out the markup
(behind `<think>`, around `</think>`, in front of a call) belong to nobody.
"""

from services.gateway.output.dialect import Dialect
from services.gateway.output.events import Content, Event, Reasoning
from services.gateway.output.follow import WHITESPACE, follow

THINK, THINK_END = "<think>", "</think>"
QUOTES = "`'\""


class MarkupParser:
    """`thinks`: the model knows `<think>`; `opens_thinking`: the prompt ends inside it.

    Without a dialect there are no calls.
    """

    def __init__(self, dialect: Dialect | None, *, thinks: bool, opens_thinking: bool) -> None:
        self._dialect = dialect
        self._held = ""
        self._begun = not thinks  # it is decided whether the output starts with <think>
        self._thinking = opens_thinking
        self._skips_newline = opens_thinking  # the one behind <think>
        self._newline = ""  # the last of the thinking, which may stand before </think>
        self._before = "\n"  # the last character of the thinking that was read
        self._gap: list[str] = []  # whitespace of the content, which may stand before a call
        self._is_fresh = False  # no content yet since thinking or a call

    @property
    def is_reasoning(self) -> bool:
        return self._thinking

    @property
    def is_settled(self) -> bool:
        return self._begun and not self._thinking

    def feed(self, text: str) -> list[Event]:
        return self._read(text, final=False)

    def finish(self) -> list[Event]:
        events = self._read("", final=True)
        if self._thinking:
            events.append(Reasoning(self._newline))
        elif not self._is_fresh:
            events.append(Content("".join(self._gap)))
        self._newline, self._gap = "", []
        return events

    def _read(self, more: str, *, final: bool) -> list[Event]:
        text = self._held + more
        events: list[Event] = []
        at = 0 if self._begun else self._begin(text, final)
        before = None
        while self._begun and before != (before := (at, self._thinking, self._is_in_call)):
            if self._dialect is not None and self._dialect.is_open:
                at = self._dialect.feed(text, at, events)
                if final and self._dialect.is_open:
                    at = self._dialect.cut(text, at, events)
            elif self._thinking:
                at = self._think(text, at, events, final)
            else:
                at = self._speak(text, at, events, final)
        self._held = text[at:]
        return events

    @property
    def _is_in_call(self) -> bool:
        return self._dialect is not None and self._dialect.is_open

    def _begin(self, text: str, final: bool) -> int:
        """Behind a <think> at the start, where the template has not written it yet."""
        seen = follow(text, 0, None, THINK)
        if seen.undecided and not final:
            return 0
        self._begun = True
        if seen.end is None:
            return 0
        self._thinking = self._skips_newline = True
        return seen.end

    def _think(self, text: str, at: int, events: list[Event], final: bool) -> int:
        start = at
        while (at := text.find("<", at)) >= 0:
            ending = follow(text, at, THINK_END)
            if ending.undecided and not final:
                break
            previous = text[at - 1] if at > start else self._before
            quoted = _is_quoted(text, previous, ending.end, final)
            if quoted is None:
                break
            if ending.end is not None and not quoted:
                self._emit_thought(text[start:at], events)
                self._stop_thinking()
                return ending.end
            if self._dialect is not None and previous == "\n":
                opening = self._dialect.opening(text, at, final=final)
                if opening.verdict == "undecided":
                    break
                if opening.verdict == "call":
                    self._emit_thought(text[start:at], events)
                    self._stop_thinking()
                    return self._start_call(opening.end, events)
            at += 1
        at = len(text) if at < 0 else at
        self._emit_thought(text[start:at], events)
        return at

    def _emit_thought(self, text: str, events: list[Event]) -> None:
        if not text:
            return
        self._before = text[-1]
        if self._skips_newline:
            self._skips_newline = False
            text = text.removeprefix("\n")
        text = self._newline + text
        self._newline = "\n" if text.endswith("\n") else ""
        events.append(Reasoning(text.removesuffix("\n")))

    def _stop_thinking(self) -> None:
        self._thinking = False
        self._newline = ""
        self._is_fresh = True

    def _speak(self, text: str, at: int, events: list[Event], final: bool) -> int:
        start = at
        while self._dialect is not None and (at := text.find("<", at)) >= 0:
            opening = self._dialect.opening(text, at, final=final)
            if opening.verdict == "call":
                self._emit_content(text[start:at], events)
                return self._start_call(opening.end, events)
            if opening.verdict == "undecided":
                self._emit_content(text[start:at], events)
                return at
            at = opening.end
        self._emit_content(text[start:], events)
        return len(text)

    def _emit_content(self, text: str, events: list[Event]) -> None:
        if self._is_fresh:
            text = ("".join(self._gap) + text).lstrip("\n")
            self._gap = []
        said = text.rstrip(WHITESPACE)
        if said:
            events.append(Content("".join(self._gap) + said))
            self._gap, self._is_fresh = [], False
        self._gap.append(text[len(said) :])

    def _start_call(self, end: int, events: list[Event]) -> int:
        assert self._dialect is not None
        self._gap, self._is_fresh = [], True
        events += self._dialect.start()
        return end


def _is_quoted(text: str, previous: str, end: int | None, final: bool) -> bool | None:
    """A `</think>` between quotes is spoken of, not written. None if that is not known yet."""
    if end is None or previous not in QUOTES:
        return False
    if end == len(text):
        return False if final else None
    return text[end] == previous
