"""One output from tokens to events, up to a stop string."""

from collections.abc import Sequence
from typing import Protocol

from services.gateway.output.events import CallEnd, CallStart, Content, Event, merged
from services.gateway.output.stop_strings import StopStrings
from shared.tokenizer import Detokenizer, Tokenizer


class OutputParser(Protocol):
    """Text to events. However the text is cut into pieces, the merged events are the same."""

    @property
    def is_reasoning(self) -> bool:
        """What comes next is thinking, as far as is known."""
        ...

    @property
    def is_settled(self) -> bool:
        """No thinking can come any more."""
        ...

    def feed(self, text: str) -> list[Event]: ...

    def finish(self) -> list[Event]:
        """What was held back, and the end of an open call."""
        ...


class PlainParser:
    """All text is content: of models and requests without thinking and without tools."""

    is_reasoning = False
    is_settled = True

    def feed(self, text: str) -> list[Event]:
        return [Content(text)] if text else []

    def finish(self) -> list[Event]:
        return []


class Output:
    """Holds back incomplete characters, undecided markup and whatever may become a stop string."""

    def __init__(
        self,
        tokenizer: Tokenizer,
        parser: OutputParser,
        stops: tuple[str, ...],
        *,
        min_tokens: int = 0,
        stop_ids: Sequence[int] = (),
        places: bool = False,
    ) -> None:
        """`stops` count from output token `min_tokens` on; the `stop_ids` have no text. With
        `places` it is known where in the content each token begins."""
        self.tokenizer = tokenizer
        self._detokenizer = Detokenizer(tokenizer)
        self._parser = parser
        self._stops = StopStrings(stops)
        self._has_stops = bool(stops)
        self._min_tokens = min_tokens
        self._stop_ids = frozenset(stop_ids)
        self.tokens = 0  # how many count, up to the one that completed a stop string
        self.reasoning_tokens = 0
        self.calls = 0
        self.has_cut_call = False
        self.stop: str | None = None  # the stop string that ended it
        self._has_places = places
        self.places: list[int] = []  # characters of content before each token of the last push
        self.certain = 0  # characters of content that have been given out
        self._fed = 0  # and those that may yet be held back

    def push(self, token_ids: Sequence[int]) -> list[Event]:
        """What is now certain. After a stop string nothing more comes."""
        if self._has_stops or self._has_places or not self._parser.is_settled:
            return self._push_singly(token_ids)
        self.tokens += len(token_ids)
        text = self._detokenizer.push_all(self._with_text(token_ids))
        return merged(self._filter(self._parser.feed(text))) if text else []

    def _push_singly(self, token_ids: Sequence[int]) -> list[Event]:
        """Where it counts which token ended the text or the thinking."""
        events: list[Event] = []
        self.places = []
        for token_id in token_ids:
            if self.stop is not None:
                break
            self.tokens += 1
            self.places.append(self._fed)
            self.reasoning_tokens += self._parser.is_reasoning
            text = "" if token_id in self._stop_ids else self._detokenizer.push(token_id)
            if text:
                events += self._filter(self._parser.feed(text))
        return merged(events)

    def _with_text(self, token_ids: Sequence[int]) -> Sequence[int]:
        """Without the stop token, which can only be the last."""
        ends = bool(token_ids) and token_ids[-1] in self._stop_ids
        return token_ids[:-1] if ends else token_ids

    def finish(self) -> list[Event]:
        """What was held back, at the end of an output that met no stop string."""
        if self.stop is not None:
            return []
        events = [*self._parser.feed(self._detokenizer.finish()), *self._parser.finish()]
        certain = self._filter(events)
        if self.stop is None:
            certain.append(self._given(self._stops.release()))
        return merged(certain)

    def _filter(self, events: list[Event]) -> list[Event]:
        """Stop strings end the content; they mean nothing in thinking and in arguments."""
        certain: list[Event] = []
        for event in events:
            if isinstance(event, Content):
                self._fed += len(event.text)
                text = event.text
                if self.tokens >= self._min_tokens:
                    text, self.stop = self._stops.push(text)
                certain.append(self._given(text))
                if self.stop is not None:
                    break
                continue
            if isinstance(event, CallStart):
                self.calls += 1
                certain.append(self._given(self._stops.release()))
            elif isinstance(event, CallEnd):
                self.has_cut_call = self.has_cut_call or not event.complete
            certain.append(event)
        return certain

    def _given(self, text: str) -> Content:
        self.certain += len(text)
        return Content(text)
