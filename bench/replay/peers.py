"""What others do, from their descriptions: prompt lookup, vLLM's ngram, llama.cpp's two best.

Each is one class with the three calls of `Drafter`. They are written to propose what the original
proposes, not to be as fast as it: their host time says nothing about it.
"""

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from bench.replay.tasks import Task


class Drafter(Protocol):
    """Proposes copies for one request after another."""

    name: str

    def begin(self, task: Task) -> None: ...

    def propose(self, ids: np.ndarray, room: int) -> Sequence[int]:
        """At most `room` >= 1 tokens behind the committed `ids`, int32 [prompt + output]."""

    def observe(self, ids: np.ndarray, drafted: int, accepted: int) -> None:
        """A round has committed: `ids` holds its tokens, of `drafted` tokens `accepted` held."""


class PromptLookup:
    """transformers' `prompt_lookup_num_tokens`: the largest n-gram first, its first occurrence."""

    def __init__(self, tokens: int = 10, max_ngram: int = 3) -> None:
        self.name = f"prompt lookup {max_ngram}/{tokens}"
        self._tokens = tokens
        self._max_ngram = max_ngram

    def begin(self, task: Task) -> None:
        """It keeps nothing."""

    def propose(self, ids: np.ndarray, room: int) -> Sequence[int]:
        for size in range(min(self._max_ngram, len(ids) - 1), 0, -1):
            starts = _following(ids, size)
            if len(starts):
                first = int(starts[0])
                copied: list[int] = ids[first : first + min(self._tokens, room)].tolist()
                return copied
        return ()

    def observe(self, ids: np.ndarray, drafted: int, accepted: int) -> None:
        """It learns nothing."""


class VllmNgram:
    """vLLM's `ngram`: the longest suffix of 2 to 5 tokens; among equals the earliest."""

    def __init__(self, tokens: int, shortest: int = 2, longest: int = 5) -> None:
        self.name = f"vLLM ngram {shortest}..{longest}/{tokens}"
        self._tokens = tokens
        self._shortest = shortest
        self._longest = longest

    def begin(self, task: Task) -> None:
        """It keeps nothing."""

    def propose(self, ids: np.ndarray, room: int) -> Sequence[int]:
        found: np.ndarray | None = None
        for size in range(self._shortest, min(self._longest, len(ids) - 1) + 1):
            starts = _following(ids, size)
            if not len(starts):
                break
            found = starts
        if found is None:
            return ()
        first = int(found[0])
        copied: list[int] = ids[first : first + min(self._tokens, room)].tolist()
        return copied

    def observe(self, ids: np.ndarray, drafted: int, accepted: int) -> None:
        """It learns nothing."""


class LlamaSimple:
    """llama.cpp's `ngram-simple`: the newest match of 12 tokens, if 12 or more follow it."""

    def __init__(self, size: int = 12, tokens: int = 48) -> None:
        self.name = f"llama.cpp simple {size}/{tokens}"
        self._size = size
        self._tokens = tokens

    def begin(self, task: Task) -> None:
        """It keeps nothing."""

    def propose(self, ids: np.ndarray, room: int) -> Sequence[int]:
        if len(ids) <= self._size + self._tokens + 1:
            return ()
        starts = _following(ids, self._size)
        if not len(starts) or int(starts[-1]) == self._size:  # position 0 is ignored
            return ()
        newest = int(starts[-1])
        copied = ids[newest : newest + self._tokens]
        return copied[:room].tolist() if len(copied) >= self._size else ()

    def observe(self, ids: np.ndarray, drafted: int, accepted: int) -> None:
        """It learns nothing."""


class LlamaMod:
    """llama.cpp's `ngram-mod`: one next token for each 24-gram, walked for 48 to 64 tokens.

    Exact keys stand for its hash table of 4 million entries: no collision, so never worse.
    """

    LAG = 32  # generated tokens are learned when so many are new
    POOR_ROUNDS = 5  # so many in a row under a quarter accepted wipe the table

    def __init__(self, size: int = 24, fewest: int = 48, most: int = 64) -> None:
        self.name = f"llama.cpp mod {size}/{fewest}/{most}"
        self._size = size
        self._fewest = fewest
        self._most = most
        self._next: dict[tuple[int, ...], int] = {}
        self._learned = 0
        self._poor = 0

    def begin(self, task: Task) -> None:
        self._next.clear()
        self._learned = 0
        self._poor = 0
        self._learn(task.prompt_ids)

    def propose(self, ids: np.ndarray, room: int) -> Sequence[int]:
        if len(ids) - self._learned > self.LAG:
            self._learn(ids)
        key = tuple(ids[-self._size :].tolist())
        drafts: list[int] = []
        while len(drafts) < self._most and (token := self._next.get(key)) is not None:
            drafts.append(token)
            key = (*key[1:], token)
        return drafts[:room] if len(drafts) >= self._fewest else ()

    def observe(self, ids: np.ndarray, drafted: int, accepted: int) -> None:
        if not drafted:
            return
        self._poor = self._poor + 1 if 4 * accepted < drafted else 0
        if self._poor >= self.POOR_ROUNDS:
            self._next.clear()
            self._learned = 0
            self._poor = 0

    def _learn(self, ids: np.ndarray) -> None:
        tokens = ids[max(0, self._learned) :].tolist()
        for i in range(len(tokens) - self._size):
            self._next[tuple(tokens[i : i + self._size])] = tokens[i + self._size]
        self._learned = max(0, len(ids) - self._size)


def _following(ids: np.ndarray, size: int) -> np.ndarray:
    """Ascending positions behind each earlier occurrence of the last `size` ids."""
    ends = np.flatnonzero(ids[size - 1 : -1] == ids[-1]) + size  # candidates: the last id agrees
    for back in range(2, size + 1):
        if not len(ends):
            break
        ends = ends[ids[ends - back] == ids[-back]]
    return ends
