"""From a request's prompt, tool results and prediction to its indexed sources. No sockets."""

import threading
import time
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Protocol

import numpy as np

from services.indexer.tool_spans import tool_spans
from shared.matching.contexts import BOUNDARY
from shared.matching.derived import changed_texts, file_texts
from shared.matching.segment import SegmentIndex
from shared.matching.views import json_view, patch_views
from shared.messages import BuildIndex, IndexedSource, IndexReady, SourceKind, SourceSpan


class TextEncoder(Protocol):
    """What the indexer needs of `shared.tokenizer.Tokenizer`."""

    @property
    def special_ids(self) -> frozenset[int]: ...

    def encode_text(self, text: str) -> np.ndarray:
        """int32 ids of plain text, special tokens spelled out."""


class Builder:
    def __init__(self, tokenizer: TextEncoder, max_context: int) -> None:
        self._tokenizer = tokenizer
        self._max_context = max_context

    def build(self, message: BuildIndex, cancelled: threading.Event) -> Iterator[IndexReady]:
        """First what is copied most, then the views of files: they take several times as long.

        Ends once `cancelled` is set, which is looked at between texts.
        """
        started_s = time.perf_counter()
        changed = chain.from_iterable(map(changed_texts, message.tool_texts))
        derived = _joined(self._encoded(changed, self._max_context, cancelled))
        sources = self._own(message, derived, cancelled)
        if message.predicted and not cancelled.is_set():
            predicted = self._tokenizer.encode_text(message.predicted)[: self._max_context]
            sources += _indexed("predicted", predicted)
        if cancelled.is_set():
            return
        yield _ready(message, sources, started_s)
        views = self._view_ids(message.tool_texts, self._max_context - len(derived), cancelled)
        if len(views) and not cancelled.is_set():
            yield _ready(message, _indexed("derived", views, is_view=True), started_s)

    def _own(
        self, message: BuildIndex, derived: np.ndarray, cancelled: threading.Event
    ) -> list[IndexedSource]:
        """The prompt, and behind it what was derived from it, the more recent; in one index, since
        a lookup in one costs half of one in two."""
        prompt = message.prompt_ids.astype(np.int32)
        # what the prompt holds is no longer than the prompt
        tool_ids = self._encoded(message.tool_texts, len(prompt), cancelled)
        spans = tool_spans(prompt, tool_ids)
        # a prompt holds special tokens, plain text cannot: there an id is never a boundary
        special = np.fromiter(self._tokenizer.special_ids, np.int32)
        tokens = np.where(np.isin(prompt, special), np.int32(BOUNDARY), prompt)
        if len(derived):
            start = len(prompt) + 1
            tokens = _joined([tokens, derived])
            spans += (SourceSpan(kind="derived", start=start, stop=len(tokens)),)
        return _indexed("prompt", tokens, spans)

    def _view_ids(
        self, tool_texts: tuple[str, ...], budget: int, cancelled: threading.Event
    ) -> np.ndarray:
        """The newest files' first, as far as the budget goes; the newest stand last."""
        views = (
            view
            for tool_text in reversed(tool_texts)
            for text in file_texts(tool_text)
            for view in (*patch_views(text), json_view(text))
        )
        return _joined(list(self._encoded(views, budget, cancelled))[::-1])

    def _encoded(
        self, texts: Iterable[str], budget: int, cancelled: threading.Event
    ) -> Iterator[np.ndarray]:
        """Each text's ids; together `budget` tokens, for which the last may be cut."""
        for text in texts:
            if budget <= 0 or cancelled.is_set():
                return
            ids = self._tokenizer.encode_text(text)[:budget]
            budget -= len(ids)
            yield ids


def _indexed(
    kind: SourceKind,
    tokens: np.ndarray,
    spans: tuple[SourceSpan, ...] = (),
    *,
    is_view: bool = False,
) -> list[IndexedSource]:
    """Empty if there is nothing to copy: less than two tokens in a row."""
    index = SegmentIndex.build(tokens)
    if not len(index.order):
        return []
    source = IndexedSource(
        kind=kind, tokens=index.tokens, order=index.order, spans=spans, is_view=is_view
    )
    return [source]


def _ready(message: BuildIndex, sources: list[IndexedSource], started_s: float) -> IndexReady:
    return IndexReady(
        request_id=message.request_id,
        sources=tuple(sources),
        build_s=time.perf_counter() - started_s,
    )


def _joined(parts: Iterable[np.ndarray]) -> np.ndarray:
    """One array with a boundary between any two: a lookup then costs the same for one file and
    for fifty, and no window spans two of them."""
    joined: list[np.ndarray] = []
    for ids in parts:
        joined += [ids, np.array([BOUNDARY], np.int32)]
    return np.concatenate(joined[:-1]) if joined else np.empty(0, np.int32)
