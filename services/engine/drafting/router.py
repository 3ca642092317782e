"""Which drafts a row verifies: a copy, the neural drafter's tokens, or none.

Torch-free: the model-free replay benchmark drives it as the engine does. One round of a row is
`propose`, then `observe` with what was committed; decisions use past rounds only.
"""

from collections import OrderedDict, deque
from collections.abc import Sequence
from functools import partial

import numpy as np
import structlog

from services.engine.drafting.adaptive import AdaptivePolicy, Pass
from services.engine.drafting.cost import RoundCost
from services.engine.drafting.draft import Draft
from services.engine.drafting.evidence import Survival, learned
from services.engine.drafting.fixed import FixedPolicy
from services.engine.drafting.neural import NeuralDrafter
from services.engine.drafting.settings import DraftSettings
from services.engine.drafting.sources import RequestSources
from services.engine.ledger import Ledger
from services.engine.tally import Tally
from shared.matching.segment import SegmentIndex
from shared.messages import IndexReady, SourceKind

# An index may overtake its request; one that never finds it is dropped when newer ones come.
EARLY_INDEXES = 64
# Of a large model on an accelerator; the engine measures its own.
TYPICAL_COLUMN_COST = 0.007


class DraftRouter:
    """`settings` is None when copy drafting is off."""

    def __init__(
        self,
        settings: DraftSettings | None,
        *,
        cost: RoundCost | None = None,
        neural: NeuralDrafter | None = None,
    ) -> None:
        self._settings = settings
        self._cost = cost or RoundCost.linear(TYPICAL_COLUMN_COST)
        self._neural = neural
        self._requests: dict[str, RequestSources] = {}
        self._adaptive: dict[str, AdaptivePolicy] = {}
        self._early: OrderedDict[str, IndexReady] = OrderedDict()
        self._ended: deque[str] = deque(maxlen=EARLY_INDEXES)
        self._log = structlog.get_logger(service="engine")

    def begin(self, request_id: str, *, expect_index: bool) -> None:
        early = self._early.pop(request_id, None)
        if self._settings is None:
            return
        self._requests[request_id] = RequestSources(
            self._settings.boundary_ids, awaiting=expect_index
        )
        if self._settings.policy == "adaptive":
            self._adaptive[request_id] = AdaptivePolicy(
                Survival(learned()),
                self._cost,
                min_match=self._settings.min_match,
                neural_width=self._neural.width if self._neural else 0,
            )
        if early is not None:
            self.add_index(early)

    def add_index(self, index: IndexReady) -> None:
        """A malformed index costs the request its copies, never its answer."""
        if self._settings is None:
            return
        sources = self._requests.get(index.request_id)
        if sources is None:
            self._keep_early(index)
            return
        try:
            sources.add_index(index)
        except ValueError as exc:
            self._log.warning("bad_index", request_id=index.request_id, error=str(exc))

    def add_sources(
        self, request_id: str, sources: Sequence[tuple[SourceKind, SegmentIndex]]
    ) -> bool:
        """Immutable sources from elsewhere (a session's archive), oldest first; on ties they stand
        behind the request's own. False if the request is not known: it ended, or copies are off.
        """
        known = self._requests.get(request_id)
        if known is None:
            return False
        known.add(sources)
        return True

    def drop_sources(self, request_id: str, kind: SourceKind) -> None:
        """They must not be used any more. A draft that is out was proposed before."""
        sources = self._requests.get(request_id)
        if sources is not None:
            sources.drop(kind)

    def tokens_of(self, request_id: str, kind: SourceKind) -> list[np.ndarray]:
        """int32 [n] of each immutable source of this kind; boundaries are -1."""
        sources = self._requests.get(request_id)
        return [] if sources is None else sources.tokens_of(kind)

    def propose(self, request_id: str, ledger: Ledger, room: int, tally: Tally) -> Draft | None:
        """At most `room` >= 1 tokens behind the ledger, which holds at least one output token."""
        sources = self._requests.get(request_id)
        draft = None
        if sources is not None and self._settings is not None:
            tally.index_wait_rounds += sources.awaiting
            sources.follow(ledger)
            if self._settings.policy == "adaptive":
                ask = None
                if self._neural is not None:
                    ask = partial(self._neural.propose, request_id, ledger)
                adaptive = self._adaptive[request_id]
                return adaptive.propose(sources, ledger, room, Pass(), ask)
            policy = FixedPolicy(self._settings.min_match, self._settings.neural_width)
            draft = policy.propose(sources, ledger, room, tally)
        if draft is None and self._neural is not None:
            budget = min(room, self._neural.width)
            ids = tuple(self._neural.propose(request_id, ledger, budget))
            draft = Draft(ids, "neural", neural=len(ids)) if ids else None
        return draft

    def observe(self, request_id: str, ledger: Ledger, draft: Draft | None, accepted: int) -> None:
        """A round has committed: `ledger` holds its tokens, the first `accepted` of `draft`."""
        adaptive = self._adaptive.get(request_id)
        if adaptive is not None:
            adaptive.observe(ledger, draft, accepted)

    def release(self, request_id: str) -> None:
        self._early.pop(request_id, None)
        self._ended.append(request_id)
        self._requests.pop(request_id, None)
        self._adaptive.pop(request_id, None)

    def _keep_early(self, index: IndexReady) -> None:
        if index.request_id in self._ended:  # it took longer than its request
            return
        self._early[index.request_id] = index
        while len(self._early) > EARLY_INDEXES:
            self._early.popitem(last=False)
