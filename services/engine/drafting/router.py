"""Which drafter proposes for a row: a copy if there is one, else the row runs without drafts.

A neural drafter will stand beside the copies here, with the same three calls: propose for a row,
observe what a round committed, release when the request ends.
"""

from collections import OrderedDict, deque

import structlog

from services.engine.drafting.copy import CopyDrafter
from services.engine.drafting.draft import Draft
from services.engine.ledger import Ledger
from services.engine.tally import Tally
from shared.messages import IndexReady

# An index may overtake its request; one that never finds it is dropped when newer ones come.
EARLY_INDEXES = 64


class DraftRouter:
    """`copies` is None when copy drafting is off."""

    def __init__(self, copies: CopyDrafter | None) -> None:
        self._copies = copies
        self._early: OrderedDict[str, IndexReady] = OrderedDict()
        self._ended: deque[str] = deque(maxlen=EARLY_INDEXES)
        self._log = structlog.get_logger(service="engine")

    def begin(self, request_id: str, *, expect_index: bool) -> None:
        early = self._early.pop(request_id, None)
        if self._copies is None:
            return
        self._copies.begin(request_id, expect_index=expect_index)
        if early is not None:
            self.add_index(early)

    def add_index(self, index: IndexReady) -> None:
        """A malformed index costs the request its copies, never its answer."""
        if self._copies is None:
            return
        try:
            if self._copies.add_index(index):
                return
        except ValueError as exc:
            self._log.warning("bad_index", request_id=index.request_id, error=str(exc))
            return
        if index.request_id in self._ended:  # it took longer than its request
            return
        self._early[index.request_id] = index
        while len(self._early) > EARLY_INDEXES:
            self._early.popitem(last=False)

    def propose(self, request_id: str, ledger: Ledger, room: int, tally: Tally) -> Draft | None:
        if self._copies is None:
            return None
        return self._copies.propose(request_id, ledger, room, tally)

    def observe(self, request_id: str, ledger: Ledger) -> None:
        if self._copies is not None:
            self._copies.observe(request_id, ledger)

    def release(self, request_id: str) -> None:
        self._early.pop(request_id, None)
        self._ended.append(request_id)
        if self._copies is not None:
            self._copies.release(request_id)
