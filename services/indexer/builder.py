"""From a request's prompt, tool results and prediction to its indexed sources. No sockets."""

import threading
import time
from collections.abc import Iterator
from typing import Protocol

import numpy as np

from shared.matching.contexts import BOUNDARY
from shared.matching.derived import derived_sources
from shared.matching.segment import SegmentIndex
from shared.messages import BuildIndex, IndexedSource, IndexReady, SourceKind


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

    def build(self, message: BuildIndex, cancelled: threading.Event) -> IndexReady | None:
        """None once `cancelled` is set, which is looked at between sources."""
        started_s = time.perf_counter()
        sources: list[IndexedSource] = []
        for source in self._sources(message, cancelled):
            if source is not None:
                sources.append(source)
        if cancelled.is_set():
            return None
        return IndexReady(
            request_id=message.request_id,
            sources=tuple(sources),
            build_s=time.perf_counter() - started_s,
        )

    def _sources(
        self, message: BuildIndex, cancelled: threading.Event
    ) -> Iterator[IndexedSource | None]:
        """In the order in which they count as indexed: later ones are the more recent."""
        if not cancelled.is_set():
            yield self._index("prompt", message.prompt_ids)
        derived = self._derived_ids(message.tool_texts, cancelled)
        if not cancelled.is_set():
            yield self._index("derived", derived)
        if message.predicted and not cancelled.is_set():
            predicted = self._tokenizer.encode_text(message.predicted)
            yield self._index("predicted", predicted[: self._max_context])

    def _derived_ids(self, tool_texts: tuple[str, ...], cancelled: threading.Event) -> np.ndarray:
        """All derived sources, a boundary between any two; together one context of tokens.

        One index for all of them: a lookup then costs the same for one file and for fifty, and the
        boundaries keep their windows apart.
        """
        parts: list[np.ndarray] = []
        left = self._max_context
        for tool_text in tool_texts:
            for text in derived_sources(tool_text):
                if left <= 0 or cancelled.is_set():
                    break
                ids = self._tokenizer.encode_text(text)[:left]
                left -= len(ids)
                parts += [ids, np.array([BOUNDARY], np.int32)]
            if left <= 0 or cancelled.is_set():
                break
        return np.concatenate(parts[:-1]) if parts else np.empty(0, np.int32)

    def _index(self, kind: SourceKind, ids: np.ndarray) -> IndexedSource | None:
        """None if there is nothing to copy: less than two tokens in a row."""
        # A prompt holds special tokens, plain text cannot: there an id is never a boundary.
        boundaries = self._tokenizer.special_ids if kind == "prompt" else frozenset()
        index = SegmentIndex.build(ids, boundaries)
        if not len(index.order):
            return None
        return IndexedSource(kind=kind, tokens=index.tokens, order=index.order)
