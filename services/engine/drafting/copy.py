"""The copy drafter: what followed the longest earlier match of the ledger's tail.

Implements the rules of a fixed minimum match and the tail handoff.
"""

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np

from services.engine.drafting.draft import Draft
from services.engine.ledger import Ledger
from services.engine.tally import Tally
from shared.matching.growing import GrowingIndex
from shared.matching.handoff import LOOKAHEAD_TOKENS, hand_off
from shared.matching.lookup import Source, continuation, find
from shared.matching.segment import SegmentIndex
from shared.messages import IndexReady, SourceKind

QUERY_TOKENS = 64


@dataclass
class RequestSources:
    """One request's sources in the order of indexing; the output is always the last."""

    sources: list[Source]
    kinds: list[SourceKind]
    output: GrowingIndex
    indexed: int = 0  # output tokens that are in `output`
    awaiting: bool = False  # the prompt's index is still being built


class CopyDrafter:
    def __init__(self, *, min_match: int, neural_width: int, boundary_ids: Collection[int]) -> None:
        self._min_match = min_match
        self._neural_width = neural_width
        self._boundary_ids = boundary_ids
        self._requests: dict[str, RequestSources] = {}

    def begin(self, request_id: str, *, expect_index: bool) -> None:
        output = GrowingIndex(self._boundary_ids)
        self._requests[request_id] = RequestSources(
            [output], ["output"], output, awaiting=expect_index
        )

    def add_index(self, index: IndexReady) -> bool:
        """Takes a request's prepared sources; False if the request is not known (yet)."""
        state = self._requests.get(index.request_id)
        if state is None:
            return False
        prepared = [SegmentIndex(source.tokens, source.order) for source in index.sources]
        state.sources = [*prepared, state.output]
        state.kinds = [*(source.kind for source in index.sources), "output"]
        state.awaiting = False
        return True

    def propose(self, request_id: str, ledger: Ledger, room: int, tally: Tally) -> Draft | None:
        """At most `room` >= 1 tokens. Committed output is indexed here, not when it is committed,
        so that a request without a next round never pays for it."""
        state = self._requests[request_id]
        tally.index_wait_rounds += state.awaiting
        fresh = ledger.tokens[ledger.prompt_len + state.indexed :]
        state.output.append(fresh)
        state.indexed += len(fresh)
        query = ledger.tokens[-QUERY_TOKENS:]
        match = find(
            query,
            state.sources,
            room + LOOKAHEAD_TOKENS,
            min_match=self._min_match,
            wrap=True,
        )
        if match is None:
            return None
        handoff = hand_off(match.available, room, self._neural_width)
        tally.handoffs += handoff.handed_off
        if not handoff.drafts:
            return None
        copied: np.ndarray = continuation(match, state.sources)[: handoff.drafts]
        return Draft(tuple(copied.tolist()), state.kinds[match.source])

    def observe(self, request_id: str, ledger: Ledger) -> None:
        """Nothing to do: the ledger itself says what to index at the next proposal."""

    def release(self, request_id: str) -> None:
        self._requests.pop(request_id, None)
