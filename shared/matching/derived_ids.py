"""Token ids of what is derived from a prompt's texts: the index holds them, the page shows them."""

import threading
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import NamedTuple, Protocol

import numpy as np

from shared.matching.contexts import BOUNDARY
from shared.matching.derived import changed_texts, file_texts
from shared.matching.pasted import argument_texts, fenced_blocks
from shared.matching.views import json_view, patch_views


class TextEncoder(Protocol):
    """What is needed of `shared.tokenizer.Tokenizer`."""

    @property
    def special_ids(self) -> frozenset[int]: ...

    def encode_text(self, text: str) -> np.ndarray:
        """int32 ids of plain text, special tokens spelled out."""


class ShownTexts(NamedTuple):
    """Where a prompt shows files; each in the order of the conversation."""

    tools: tuple[str, ...]  # tool results
    users: tuple[str, ...] = ()  # what users wrote and pasted
    calls: tuple[str, ...] = ()  # JSON arguments of earlier tool calls


class DerivedIds:
    """Of one request's texts; stops between texts once `cancelled` is set."""

    def __init__(
        self,
        encoder: TextEncoder,
        shown: ShownTexts,
        max_context: int,
        cancelled: threading.Event,
    ) -> None:
        self._encoder = encoder
        self._shown = shown
        self._max_context = max_context
        self._cancelled = cancelled

    def changed(self) -> np.ndarray:
        """int32 [n], at most one context: listings without their numbers, unescaped JSON. Those of
        tool results come first in the budget, and stand last, as the more recent."""
        tools, users, calls = self._shown
        of_tools = list(self.encoded(_all(changed_texts, tools), self._max_context))
        others = chain(_all(changed_texts, users), _all(argument_texts, calls))
        left = self._max_context - sum(map(len, of_tools))
        return joined([*self.encoded(others, left), *of_tools])

    def views(self, changed_len: int) -> np.ndarray:
        """int32 [n]: files as patches and JSON strings spell them, together with what was changed
        at most one context; those of tool results first, the newest of them first, as far as that
        goes; the newest stand last."""
        tools, users, calls = (texts[::-1] for texts in self._shown)
        blocks = _all(fenced_blocks, users)
        files = chain(
            _all(file_texts, tools), _all(argument_texts, calls), _all(file_texts, blocks)
        )
        views = (view for text in files for view in (*patch_views(text), json_view(text)))
        return joined(list(self.encoded(views, self._max_context - changed_len))[::-1])

    def encoded(self, texts: Iterable[str], budget: int) -> Iterator[np.ndarray]:
        """Each text's ids; together `budget` tokens, for which the last may be cut."""
        for text in texts:
            if budget <= 0 or self._cancelled.is_set():
                return
            ids = self._encoder.encode_text(text)[:budget]
            budget -= len(ids)
            yield ids


def _all(found_in: Callable[[str], Iterator[str]], texts: Iterable[str]) -> Iterator[str]:
    return chain.from_iterable(map(found_in, texts))


def joined(parts: Iterable[np.ndarray]) -> np.ndarray:
    """One array with a boundary between any two: a lookup then costs the same for one file and
    for fifty, and no window spans two of them."""
    pieces: list[np.ndarray] = []
    for ids in parts:
        pieces += [ids, np.array([BOUNDARY], np.int32)]
    return np.concatenate(pieces[:-1]) if pieces else np.empty(0, np.int32)
