"""The text of one output, token by token, up to a stop string."""

from collections.abc import Iterable

from shared.tokenizer import Detokenizer, Tokenizer


class OutputText:
    """Holds back incomplete characters and whatever may yet become a stop string."""

    def __init__(self, tokenizer: Tokenizer, stops: tuple[str, ...]) -> None:
        self._detokenizer = Detokenizer(tokenizer)
        self._stops = stops
        self._held = ""
        self.tokens = 0  # how many count, up to the one that completed a stop string
        self.stopped = False

    def push(self, token_ids: Iterable[int]) -> str:
        """The text that is now certain. After a stop string nothing more comes."""
        released = ""
        for token_id in token_ids:
            if self.stopped:
                break
            self.tokens += 1
            released += self._release(self._detokenizer.push(token_id))
        return released

    def finish(self) -> str:
        """What was held back, at the end of an output that met no stop string."""
        if self.stopped:
            return ""
        text = self._release(self._detokenizer.finish()) + self._held
        self._held = ""
        return text

    def _release(self, text: str) -> str:
        self._held += text
        starts = [at for stop in self._stops if (at := self._held.find(stop)) >= 0]
        if starts:
            self.stopped = True
            certain, self._held = self._held[: min(starts)], ""
            return certain
        keep = max((_overlap(self._held, stop) for stop in self._stops), default=0)
        cut = len(self._held) - keep
        certain, self._held = self._held[:cut], self._held[cut:]
        return certain


def _overlap(text: str, stop: str) -> int:
    """The longest suffix of `text` that begins `stop`."""
    for length in range(min(len(text), len(stop) - 1), 0, -1):
        if stop.startswith(text[-length:]):
            return length
    return 0
