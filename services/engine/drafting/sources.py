"""What one request may copy from."""

from bisect import bisect_right
from collections.abc import Collection, Sequence
from typing import NamedTuple

import numpy as np

from services.engine.ledger import Ledger
from shared.matching.contexts import DEPTH, ledger_query
from shared.matching.growing import GrowingIndex
from shared.matching.lookup import Source
from shared.matching.segment import SegmentIndex
from shared.messages import IndexReady, SourceKind


class Place(NamedTuple):
    """A position in one source."""

    source: Source
    position: int


def _output_query(ledger: Ledger) -> bytes:
    return ledger_query(ledger.tokens[ledger.prompt_len :])


class _Held(NamedTuple):
    kind: SourceKind
    starts: Sequence[int]  # of the spans that have a kind of their own, ascending
    stops: Sequence[int]
    kinds: Sequence[SourceKind]
    is_view: bool = False


class RequestSources:
    """From the oldest to the newest: session, views, prompt, derived, predicted, output."""

    def __init__(self, boundary_ids: Collection[int], *, awaiting: bool) -> None:
        self.output = GrowingIndex(boundary_ids)
        self.indexes: list[Source] = [self.output]
        self.awaiting = awaiting  # the prompt's index is still being built
        self.predicted: Place | None = None  # the start of the caller's predicted output
        self._held = {id(self.output): _Held("output", (), (), ())}
        self.prompt: SegmentIndex | None = None  # what was derived from it stands behind it
        self._elsewhere = 0  # how many of `indexes` are not the request's own
        self._indexed = 0  # output tokens that are in `output`

    def add_index(self, index: IndexReady) -> None:
        """Takes prepared sources of the request; what comes later counts as older.

        Raises:
            ValueError: one of them is malformed; none is taken.
        """
        prepared = [SegmentIndex(source.tokens, source.order) for source in index.sources]
        for built, source in zip(prepared, index.sources, strict=True):
            spans = source.spans
            self._held[id(built)] = _Held(
                source.kind,
                [span.start for span in spans],
                [span.stop for span in spans],
                [span.kind for span in spans],
                is_view=source.is_view,
            )
            if source.kind == "prompt":
                self.prompt = built
            if source.kind == "predicted":
                self.predicted = Place(built, 0)
        self.indexes[self._elsewhere : self._elsewhere] = prepared
        self.awaiting = False

    def add(self, sources: Sequence[tuple[SourceKind, SegmentIndex]]) -> None:
        """Sources from elsewhere, behind the request's own on ties."""
        for kind, index in sources:
            self._held[id(index)] = _Held(kind, (), (), ())
        self.indexes[self._elsewhere : self._elsewhere] = [index for _, index in sources]
        self._elsewhere += len(sources)

    def kind_of(self, at: Place) -> SourceKind:
        held = self._held[id(at.source)]
        i_span = bisect_right(held.starts, at.position) - 1
        if i_span >= 0 and at.position < held.stops[i_span]:
            return held.kinds[i_span]
        return held.kind

    def drop(self, kind: SourceKind) -> None:
        """Sources from elsewhere are gone; nothing may be copied from them any more."""
        gone = {id(index) for index in self.indexes if self._held[id(index)].kind == kind}
        self._elsewhere -= sum(id(index) in gone for index in self.indexes[: self._elsewhere])
        self.indexes[:] = [index for index in self.indexes if id(index) not in gone]
        for index_id in gone:
            del self._held[index_id]

    def tokens_of(self, kind: SourceKind) -> list[np.ndarray]:
        """Of the immutable sources of this kind, without views: those repeat what is there."""
        found = []
        for index in self.indexes:
            held = self._held[id(index)]
            if not isinstance(index, SegmentIndex) or held.is_view:
                continue
            if held.kind == kind:
                found.append(index.tokens)
            spans = zip(held.kinds, held.starts, held.stops, strict=True)
            found += [index.tokens[start:stop] for other, start, stop in spans if other == kind]
        return found

    def in_prediction(self, ledger: Ledger) -> Place | None:
        """Where the predicted output goes on, as long as all output has followed it."""
        done = ledger.output_len
        if self.predicted is None or done > DEPTH:  # from there on any lookup sees as much
            return None
        source = self.predicted.source
        if source.available(done, 1) and source.match_length(done, _output_query(ledger)) == done:
            return Place(source, done)
        return None

    def holds(self, at: Place) -> bool:
        """Its source has not been dropped."""
        return id(at.source) in self._held

    def follow(self, ledger: Ledger) -> None:
        """Indexes committed output. Called before a lookup, not after a round, so that a request
        without a next round never pays for it."""
        fresh = ledger.tokens[ledger.prompt_len + self._indexed :]
        self.output.append(fresh)
        self._indexed += len(fresh)
