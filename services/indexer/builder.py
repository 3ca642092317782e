"""From a request's prompt, tool results and prediction to its indexed sources. No sockets."""

import threading
import time
from collections.abc import Iterator

import numpy as np

from services.indexer.tool_spans import tool_spans
from shared.matching.contexts import BOUNDARY
from shared.matching.derived_ids import DerivedIds, ShownTexts, TextEncoder, joined
from shared.matching.segment import SegmentIndex
from shared.messages import BuildIndex, IndexedSource, IndexReady, SourceKind, SourceSpan


class Builder:
    def __init__(self, tokenizer: TextEncoder, max_context: int) -> None:
        self._tokenizer = tokenizer
        self._max_context = max_context

    def build(self, message: BuildIndex, cancelled: threading.Event) -> Iterator[IndexReady]:
        """First what is copied most, then the views of files: they take several times as long.

        Ends once `cancelled` is set, which is looked at between texts.
        """
        started_s = time.perf_counter()
        shown = ShownTexts(message.tool_texts, message.user_texts, message.call_arguments)
        ids = DerivedIds(self._tokenizer, shown, self._max_context, cancelled)
        derived = ids.changed()
        sources = self._own(message, derived, ids)
        if message.predicted and not cancelled.is_set():
            predicted = self._tokenizer.encode_text(message.predicted)[: self._max_context]
            sources += _indexed("predicted", predicted)
        if cancelled.is_set():
            return
        yield _ready(message, sources, started_s)
        views = ids.views(len(derived))
        if len(views) and not cancelled.is_set():
            yield _ready(message, _indexed("derived", views, is_view=True), started_s)

    def _own(
        self, message: BuildIndex, derived: np.ndarray, ids: DerivedIds
    ) -> list[IndexedSource]:
        """The prompt, and behind it what was derived from it, the more recent; in one index, since
        a lookup in one costs half of one in two."""
        prompt = message.prompt_ids.astype(np.int32)
        # what the prompt holds is no longer than the prompt
        tool_ids = ids.encoded(message.tool_texts, len(prompt))
        spans = tool_spans(prompt, tool_ids)
        # a prompt holds special tokens, plain text cannot: there an id is never a boundary
        special = np.fromiter(self._tokenizer.special_ids, np.int32)
        tokens = np.where(np.isin(prompt, special), np.int32(BOUNDARY), prompt)
        if len(derived):
            start = len(prompt) + 1
            tokens = joined([tokens, derived])
            spans += (SourceSpan(kind="derived", start=start, stop=len(tokens)),)
        return _indexed("prompt", tokens, spans)


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
