"""Log probabilities of output tokens, kept until the text they belong to is certain."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from services.gateway.output.events import Content, Event
from shared.messages import OutputTokens
from shared.tokenizer import Tokenizer


class Candidate(NamedTuple):
    text: bytes
    logprob: float


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    """One token of the content, and the tokens that were as likely or nearly so."""

    token: Candidate
    top: tuple[Candidate, ...]  # best first


class LogprobCollector:
    """Hands each token's logprob out with the content in which its text begins: what a stop string
    cuts off has none, however the engine's messages group the tokens."""

    def __init__(self, tokenizer: Tokenizer, stop_ids: Sequence[int]) -> None:
        self._tokenizer = tokenizer
        self._stop_ids = frozenset(stop_ids)
        self._waiting: list[tuple[int, TokenLogprob]] = []

    def add(self, tokens: OutputTokens, first: int, places: Sequence[int]) -> None:
        """The tokens of the message from `first` on: reasoning stands before. `places`: how much
        content, in characters, stands before each token. A stop token or a special one has no text
        and no entry."""
        logprobs = tokens.logprobs
        if logprobs is None:
            return
        width = logprobs.width
        for i in range(first, len(places)):
            token_id = int(tokens.token_ids[i])
            if token_id in self._stop_ids or self._tokenizer.is_silent(token_id):
                continue
            ranked = slice(i * width, (i + 1) * width)
            top = zip(logprobs.top_ids[ranked].tolist(), logprobs.top[ranked].tolist(), strict=True)
            entry = TokenLogprob(
                self._candidate(token_id, float(logprobs.chosen[i])),
                tuple(self._candidate(*pair) for pair in top),
            )
            self._waiting.append((places[i], entry))

    def attach(self, events: list[Event], certain: int) -> list[Event]:
        """The events; on the last piece of content among them all that waits and begins within the
        `certain` characters that have now been given out."""
        for index in range(len(events) - 1, -1, -1):
            event = events[index]
            if isinstance(event, Content):
                ripe = tuple(entry for place, entry in self._waiting if place < certain)
                self._waiting = self._waiting[len(ripe) :]
                return [*events[:index], Content(event.text, ripe), *events[index + 1 :]]
        return events

    def _candidate(self, token_id: int, logprob: float) -> Candidate:
        return Candidate(self._tokenizer.token_bytes(token_id), logprob)
