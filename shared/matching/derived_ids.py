"""Token ids of what is derived from tool results: the index holds them, and the page shows them."""

import threading
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Protocol

import numpy as np

from shared.matching.contexts import BOUNDARY
from shared.matching.derived import changed_texts, file_texts
from shared.matching.views import json_view, patch_views


class TextEncoder(Protocol):
    """What is needed of `shared.tokenizer.Tokenizer`."""

    @property
    def special_ids(self) -> frozenset[int]: ...

    def encode_text(self, text: str) -> np.ndarray:
        """int32 ids of plain text, special tokens spelled out."""


class DerivedIds:
    """Of one request's tool results; stops between texts once `cancelled` is set."""

    def __init__(
        self,
        encoder: TextEncoder,
        tool_texts: tuple[str, ...],
        max_context: int,
        cancelled: threading.Event,
    ) -> None:
        self._encoder = encoder
        self._tool_texts = tool_texts
        self._max_context = max_context
        self._cancelled = cancelled

    def changed(self) -> np.ndarray:
        """int32 [n], at most one context: listings without their numbers, unescaped JSON."""
        changed = chain.from_iterable(map(changed_texts, self._tool_texts))
        return joined(self.encoded(changed, self._max_context))

    def views(self, changed_len: int) -> np.ndarray:
        """int32 [n]: files as patches and JSON strings spell them, together with what was changed
        at most one context; the newest files' first, as far as that goes; the newest stand last."""
        views = (
            view
            for tool_text in reversed(self._tool_texts)
            for text in file_texts(tool_text)
            for view in (*patch_views(text), json_view(text))
        )
        return joined(list(self.encoded(views, self._max_context - changed_len))[::-1])

    def encoded(self, texts: Iterable[str], budget: int) -> Iterator[np.ndarray]:
        """Each text's ids; together `budget` tokens, for which the last may be cut."""
        for text in texts:
            if budget <= 0 or self._cancelled.is_set():
                return
            ids = self._encoder.encode_text(text)[:budget]
            budget -= len(ids)
            yield ids


def joined(parts: Iterable[np.ndarray]) -> np.ndarray:
    """One array with a boundary between any two: a lookup then costs the same for one file and
    for fifty, and no window spans two of them."""
    pieces: list[np.ndarray] = []
    for ids in parts:
        pieces += [ids, np.array([BOUNDARY], np.int32)]
    return np.concatenate(pieces[:-1]) if pieces else np.empty(0, np.int32)
