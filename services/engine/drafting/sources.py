"""What one request may copy from."""

from collections.abc import Collection, Sequence

import numpy as np

from services.engine.ledger import Ledger
from shared.matching.growing import GrowingIndex
from shared.matching.lookup import Source
from shared.matching.segment import SegmentIndex
from shared.messages import IndexReady, SourceKind


class RequestSources:
    """In order of preference on ties: session, prompt, derived, predicted, output last."""

    def __init__(self, boundary_ids: Collection[int], *, awaiting: bool) -> None:
        self.output = GrowingIndex(boundary_ids)
        self.indexes: list[Source] = [self.output]
        self.kinds: list[SourceKind] = ["output"]
        self.awaiting = awaiting  # the prompt's index is still being built
        self._indexed = 0  # output tokens that are in `output`

    def add_index(self, index: IndexReady) -> None:
        """Takes the request's prepared sources.

        Raises:
            ValueError: one of them is malformed; none is taken.
        """
        prepared = [SegmentIndex(source.tokens, source.order) for source in index.sources]
        self.indexes[-1:-1] = prepared
        self.kinds[-1:-1] = [source.kind for source in index.sources]
        self.awaiting = False

    def add(self, sources: Sequence[tuple[SourceKind, SegmentIndex]]) -> None:
        """Sources from elsewhere, behind the request's own on ties."""
        self.indexes[:0] = [index for _, index in sources]
        self.kinds[:0] = [kind for kind, _ in sources]

    def drop(self, kind: SourceKind) -> None:
        kept = [i for i, other in enumerate(self.kinds) if other != kind]
        self.indexes[:] = [self.indexes[i] for i in kept]
        self.kinds[:] = [self.kinds[i] for i in kept]

    def tokens_of(self, kind: SourceKind) -> list[np.ndarray]:
        pairs = zip(self.indexes, self.kinds, strict=True)
        return [i.tokens for i, other in pairs if other == kind and isinstance(i, SegmentIndex)]

    def follow(self, ledger: Ledger) -> None:
        """Indexes committed output. Called before a lookup, not after a round, so that a request
        without a next round never pays for it."""
        fresh = ledger.tokens[ledger.prompt_len + self._indexed :]
        self.output.append(fresh)
        self._indexed += len(fresh)
