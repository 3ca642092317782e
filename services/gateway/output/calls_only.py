"""The output of a request whose answer must be tool calls."""

from services.gateway.output.events import Content, Event
from services.gateway.output.output import OutputParser


class CallsOnly:
    """Its grammar allows no text beside the calls: what looks like some is a call that was cut
    before its name was whole, or the line ends between two calls."""

    def __init__(self, parser: OutputParser) -> None:
        self._parser = parser

    @property
    def is_reasoning(self) -> bool:
        return self._parser.is_reasoning

    @property
    def is_settled(self) -> bool:
        return self._parser.is_settled

    def feed(self, text: str) -> list[Event]:
        return [e for e in self._parser.feed(text) if not isinstance(e, Content)]

    def finish(self) -> list[Event]:
        return [e for e in self._parser.finish() if not isinstance(e, Content)]
