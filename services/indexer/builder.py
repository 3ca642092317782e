"""From a request's prompt, tool results and prediction to its indexed sources. No sockets."""

import threading
import time
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Protocol

import numpy as np

from services.indexer.tool_spans import tool_spans
from shared.matching.contexts import BOUNDARY
from shared.matching.derived import derived_sources, file_texts
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

        Ends once `cancelled` is set, which is looked at between sources.
        """
        started_s = time.perf_counter()
        left = self._max_context
        sources: list[IndexedSource] = []
        for kind, ids in self._texts(message, cancelled):
            if kind == "derived":
                left -= len(ids)
            spans: tuple[SourceSpan, ...] = ()
            if kind == "prompt":
                # what the prompt holds is no longer than the prompt
                spans = tool_spans(ids, self._encoded(message.tool_texts, len(ids), cancelled))
            sources += self._index(kind, ids, spans)
        if cancelled.is_set():
            return
        yield _ready(message, sources, started_s)
        views = self._view_ids(message.tool_texts, left, cancelled)
        if len(views) and not cancelled.is_set():
            indexed = self._index("derived", views, is_view=True)
            yield _ready(message, indexed, started_s)

    def _texts(
        self, message: BuildIndex, cancelled: threading.Event
    ) -> Iterator[tuple[SourceKind, np.ndarray]]:
        """In the order in which they count as indexed: later ones are the more recent."""
        if not cancelled.is_set():
            yield "prompt", message.prompt_ids
        listings = chain.from_iterable(map(derived_sources, message.tool_texts))
        derived = self._encoded(listings, self._max_context, cancelled)
        if not cancelled.is_set():
            yield "derived", _joined(derived)
        if message.predicted and not cancelled.is_set():
            predicted = self._tokenizer.encode_text(message.predicted)
            yield "predicted", predicted[: self._max_context]

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

    def _index(
        self,
        kind: SourceKind,
        ids: np.ndarray,
        spans: tuple[SourceSpan, ...] = (),
        *,
        is_view: bool = False,
    ) -> list[IndexedSource]:
        """Empty if there is nothing to copy: less than two tokens in a row."""
        # A prompt holds special tokens, plain text cannot: there an id is never a boundary.
        boundaries = self._tokenizer.special_ids if kind == "prompt" else frozenset()
        index = SegmentIndex.build(ids, boundaries)
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
