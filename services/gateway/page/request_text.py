"""One request's output in segments by where each token came from, and the texts it copied from."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from services.gateway.page.recent import RecentRequest
from services.gateway.page.source_texts import Copied, SourceTexts
from services.gateway.page.token_text import TokenText
from shared.messages import DraftKind, DraftSpan
from shared.tokenizer import Tokenizer

# "copied": an accepted draft of a request that still runs, so its source is not known yet.
# "plain": the model's own token.
SegmentKind = DraftKind | Literal["copied", "plain"]


@dataclass(frozen=True)
class Segment:
    """Output tokens [start, stop) of one origin; `span` is the round that they came in."""

    start: int
    stop: int
    kind: SegmentKind
    span: DraftSpan | None = None
    copied: Copied | None = None


@dataclass(frozen=True)
class Snapshot:
    """What the page shows of a request, taken at one moment, to be read in a thread."""

    request: RecentRequest
    output_ids: np.ndarray  # int32 [output_len]
    rounds: tuple[tuple[int, int], ...]

    @classmethod
    def of(cls, request: RecentRequest) -> "Snapshot":
        ids = np.array(request.output_ids, dtype=np.int32)
        return cls(request, ids, tuple(request.rounds))


def as_json(taken: Snapshot, tokenizer: Tokenizer, max_context: int) -> dict[str, Any]:
    """`segments` join to the output; `sources` are what they point into, the prompt first."""
    request, finished = taken.request, taken.request.finished
    sources = SourceTexts(
        tokenizer,
        request.prompt_ids,
        taken.output_ids,
        shown=request.shown,
        predicted=request.predicted,
        max_context=max_context,
    )
    record = finished.drafts if finished else None
    if record is None:
        segments = list(by_rounds(taken.rounds, len(taken.output_ids)))
    else:
        segments = list(by_record(record.spans, taken.output_ids, sources))
    texts = sources.texts()
    offsets = [places for _, places in texts]
    shown = TokenText(tokenizer)
    pieces = [shown.push(taken.output_ids[s.start : s.stop].tolist()) for s in segments]
    if pieces:
        pieces[-1] += shown.finish()
    return {
        **request.summary(),
        **request.outcome(),
        "object": "ninfer.request_text",
        "segments": [
            _segment(segment, text, offsets) for segment, text in zip(segments, pieces, strict=True)
        ],
        "sources": [
            {"kind": source.kind, "text": text}
            for source, (text, _) in zip(sources.sources, texts, strict=True)
        ],
        "dropped": record.dropped if record else 0,
    }


def by_rounds(rounds: tuple[tuple[int, int], ...], length: int) -> Iterator[Segment]:
    """Of a request that has no record: accepted drafts, whatever they came from, and others."""
    at = 0
    for tokens, accepted in rounds:
        edge, end = min(at + accepted, length), min(at + tokens, length)
        if edge > at:
            yield Segment(at, edge, "copied")
        if end > edge:
            yield Segment(edge, end, "plain")
        at += tokens


def by_record(
    spans: tuple[DraftSpan, ...], output_ids: np.ndarray, sources: SourceTexts
) -> Iterator[Segment]:
    """Rounds without room for drafts are in no span: their tokens are plain."""
    at = 0
    for span in spans:
        start, stop = min(span.start, len(output_ids)), min(span.stop, len(output_ids))
        if start > at:
            yield Segment(at, start, "plain")
        accepted = min(span.accepted, stop - start)
        # a bridge begins with the neural drafter's tokens, or with looked-up ones
        neural = min(span.neural, accepted)
        if neural:
            kind = span.kind if span.kind in ("lookup", "neural") else "neural"
            yield Segment(start, start + neural, kind, span)
        if accepted > neural and span.kind is not None:
            ids = output_ids[start + neural : start + accepted]
            found = None if span.position is None else sources.find(span.kind, span.position, ids)
            yield Segment(start + neural, start + accepted, span.kind, span, found)
        if stop > start + accepted:
            yield Segment(start + accepted, stop, "plain", span)
        at = max(at, stop)
    if at < len(output_ids):
        yield Segment(at, len(output_ids), "plain")


def _segment(segment: Segment, text: str, offsets: list[dict[int, int]]) -> dict[str, Any]:
    shown: dict[str, Any] = {
        "kind": segment.kind,
        "text": text,
        "tokens": segment.stop - segment.start,
    }
    if segment.span is not None:
        span = segment.span
        shown["round"] = {
            name: getattr(span, name)
            for name in ("kind", "position", "match_length", "drafted", "accepted", "declined")
        }
    if segment.copied is not None:
        source, start, stop = segment.copied
        shown |= {
            "source": source,
            "from": offsets[source][start],
            "to": offsets[source][stop],
        }
    return shown
