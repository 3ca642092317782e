"""Where a text ends because the client said so."""

from typing import NamedTuple


class Certain(NamedTuple):
    text: str
    stop: str | None  # the stop string that ended it


class StopStrings:
    """Holds back whatever may yet become a stop string. The one that is completed first wins."""

    def __init__(self, stops: tuple[str, ...]) -> None:
        self._stops = stops
        self._held = ""

    def push(self, text: str) -> Certain:
        if not self._stops:
            return Certain(text, None)
        self._held += text
        found = [(at, stop) for stop in self._stops if (at := self._held.find(stop)) >= 0]
        if found:
            at, stop = min(found, key=lambda pair: pair[0])
            certain, self._held = self._held[:at], ""
            return Certain(certain, stop)
        keep = max(_overlap(self._held, stop) for stop in self._stops)
        cut = len(self._held) - keep
        certain, self._held = self._held[:cut], self._held[cut:]
        return Certain(certain, None)

    def release(self) -> str:
        """What was held back, where no more text can follow."""
        text, self._held = self._held, ""
        return text


def _overlap(text: str, stop: str) -> int:
    """The longest suffix of `text` that begins `stop`."""
    for length in range(min(len(text), len(stop) - 1), 0, -1):
        if stop.startswith(text[-length:]):
            return length
    return 0
