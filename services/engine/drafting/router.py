"""Which drafts a row verifies: a copy, the neural drafter's tokens, or none.

Torch-free: the model-free replay benchmark drives it as the engine does. One round of a row is
`propose`, then `observe` with what was committed; decisions use past rounds only.
"""

import time
from collections import OrderedDict, deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import structlog

from services.engine.drafting.adaptive import AdaptivePolicy
from services.engine.drafting.cost import RoundCost
from services.engine.drafting.draft import Draft
from services.engine.drafting.evidence import Survival, learned
from services.engine.drafting.fixed import FixedPolicy
from services.engine.drafting.lookup_ngram import look_up
from services.engine.drafting.neural import NeuralAsk, NeuralDrafter
from services.engine.drafting.neural_window import NeuralWindow
from services.engine.drafting.record import DraftRecorder
from services.engine.drafting.round import Fallback, Round
from services.engine.drafting.settings import DraftSettings
from services.engine.drafting.sources import RequestSources
from services.engine.ledger import Ledger
from services.engine.tally import Tally
from shared import messages
from shared.matching.segment import SegmentIndex
from shared.messages import Declined, IndexReady, SourceKind, Speculation

# An index may overtake its request; one that never finds it is dropped when newer ones come.
EARLY_INDEXES = 64
# Of a large model on an accelerator; the engine measures its own.
TYPICAL_COLUMN_COST = 0.007
ALL_OF_IT = Speculation()
NO_COSTS: Sequence[float] = (0.0,)  # of asking no neural drafter for no draft


@dataclass
class _Row:
    settings: DraftSettings
    sources: RequestSources
    policy: FixedPolicy | AdaptivePolicy
    record: DraftRecorder | None
    # where the output ended at a proposal that has no verdict yet
    proposed_at: int | None = None
    proposed: Draft | None = None


class Ask(NamedTuple):
    """A row that may verify drafts in the next pass."""

    request_id: str
    ledger: Ledger  # holds at least one output token
    room: int  # most drafts, at least 1
    tally: Tally


class _Weighed(NamedTuple):
    ask: Ask
    row: _Row
    round: Round
    neural: int  # drafts that the neural drafter is asked for


class DraftRouter:
    """`settings` is None when nothing is copied and nothing looked up."""

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
        self._rows: dict[str, _Row] = {}
        self._pass_columns, self._pass_rows, self._attended = 1, 1, 0
        self._early: OrderedDict[str, list[IndexReady]] = OrderedDict()
        self._ended: deque[str] = deque(maxlen=EARLY_INDEXES)
        self._log = structlog.get_logger(service="engine")

    def begin(
        self,
        request_id: str,
        *,
        expect_index: bool,
        wanted: Speculation = ALL_OF_IT,
        record: bool = False,
    ) -> None:
        """`wanted` narrows the settings for this request; `record` keeps what each round did."""
        early = self._early.pop(request_id, ())
        if self._settings is None:
            return
        settings = self._settings.narrowed(wanted)
        self._rows[request_id] = _Row(
            settings,
            RequestSources(settings.boundary_ids, awaiting=expect_index),
            self._make_policy(settings),
            DraftRecorder() if record else None,
        )
        for index in early:
            self.add_index(index)

    def add_index(self, index: IndexReady) -> None:
        """A malformed index costs the request its copies, never its answer."""
        if self._settings is None:
            return
        row = self._rows.get(index.request_id)
        if row is None:
            self._keep_early(index)
            return
        try:
            row.sources.add_index(index)
        except ValueError as exc:
            self._log.warning("bad_index", request_id=index.request_id, error=str(exc))

    def add_sources(
        self, request_id: str, sources: Sequence[tuple[SourceKind, SegmentIndex]]
    ) -> bool:
        """Immutable sources from elsewhere (a session's archive), oldest first; on ties they stand
        behind the request's own. False if the request is not known: it ended, or copies are off.
        """
        row = self._rows.get(request_id)
        if row is None:
            return False
        row.sources.add(sources)
        return True

    def drop_sources(self, request_id: str, kind: SourceKind) -> None:
        """They must not be used any more. A draft that is out was proposed before."""
        row = self._rows.get(request_id)
        if row is not None:
            row.sources.drop(kind)

    def tokens_of(self, request_id: str, kind: SourceKind) -> list[np.ndarray]:
        """int32 [n] of each immutable source of this kind, without views; boundaries are -1."""
        row = self._rows.get(request_id)
        return [] if row is None else row.sources.tokens_of(kind)

    def begin_pass(self, columns: int, rows: int, attended: int = 0) -> None:
        """The next proposals join a pass of so many columns without drafts, in so many rows;
        together they attend to so many tokens."""
        self._pass_columns, self._pass_rows, self._attended = columns, rows, attended

    def end_pass(self, forward_s: float) -> None:
        """That pass took so long, in the unit of the cost curve."""
        self._cost.observe(self._pass_columns, forward_s, self._attended)

    def propose(self, request_id: str, ledger: Ledger, room: int, tally: Tally) -> Draft | None:
        """As `propose_all`, of a round with one row."""
        return self.propose_all([Ask(request_id, ledger, room, tally)]).get(request_id)

    def propose_all(self, asks: Sequence[Ask]) -> dict[str, Draft]:
        """A pass's drafts, at most `room` for each row. The rows that are to get neural drafts are
        told apart first, so that the neural drafter is asked once for all of them."""
        base = self._pass_columns
        weighed = [found for ask in asks if (found := self._weigh(ask))]
        fallbacks = self._ask(weighed)
        self._pass_columns = base
        drafts = {}
        for (request_id, *_), row, round_, _ in weighed:
            draft = row.policy.propose(round_, fallbacks.get(request_id))
            row.proposed_at, row.proposed = round_.ledger.output_len, draft
            if draft is not None:
                drafts[request_id] = draft
                self._pass_columns += len(draft.token_ids)
                self._attended += len(draft.token_ids) * len(round_.ledger)
        return drafts

    def observe(self, request_id: str, ledger: Ledger, draft: Draft | None, accepted: int) -> None:
        """A round has committed: `ledger` holds its tokens, the first `accepted` of `draft`."""
        row = self._rows.get(request_id)
        if row is None:
            return
        row.policy.observe(ledger, draft, accepted)
        if row.record is not None and row.proposed_at is not None:
            start, stop = row.proposed_at, ledger.output_len
            if draft is not None:
                row.record.add(start, stop, draft, accepted)
            else:
                row.record.add_plain(start, stop, _why_nothing(row))
        row.proposed_at = None

    def record_of(self, request_id: str) -> messages.DraftRecord | None:
        """What each round drafted, if `begin` asked for it."""
        row = self._rows.get(request_id)
        if row is None or row.record is None:
            return None
        return messages.DraftRecord(spans=tuple(row.record.spans), dropped=row.record.dropped)

    def release(self, request_id: str) -> None:
        self._early.pop(request_id, None)
        self._ended.append(request_id)
        self._rows.pop(request_id, None)

    def _make_policy(self, settings: DraftSettings) -> FixedPolicy | AdaptivePolicy:
        if settings.policy == "fixed":
            return FixedPolicy(min_match=settings.min_match, neural_width=settings.neural_width)
        return AdaptivePolicy(
            Survival(learned()),
            self._cost,
            min_match=settings.min_match,
            window=NeuralWindow(settings.neural_width, adaptive=settings.adaptive_neural),
        )

    def _weigh(self, ask: Ask) -> _Weighed | None:
        row = self._rows.get(ask.request_id)
        if row is None:
            return None
        settings, sources = row.settings, row.sources
        ask.tally.index_wait_rounds += sources.awaiting
        sources.follow(ask.ledger)
        neural_room, neural_costs = 0, NO_COSTS
        if self._neural is not None or settings.lookup_ngram:
            neural_room = min(ask.room, settings.neural_width)
            neural_costs = self._neural_costs(neural_room, len(ask.ledger))
        round_ = Round(
            sources,
            ask.ledger,
            ask.room,
            min(ask.room, settings.width),
            ask.tally,
            self._pass_columns,
            self._pass_rows,
            neural_room,
            neural_costs,
        )
        wanted = row.policy.weigh(round_)
        self._pass_columns += wanted.columns
        return _Weighed(ask, row, round_, wanted.neural)

    def _neural_costs(self, room: int, context: int) -> Sequence[float]:
        """Of each row's part in asking for so many: all rows go through a step together."""
        if self._neural is None:
            return [0.0] * (room + 1)
        one = self._cost.unit(context) * self._pass_rows
        return [self._neural.cost(drafts) / one for drafts in range(room + 1)]

    def _ask(self, weighed: Sequence[_Weighed]) -> dict[str, Fallback]:
        """What stands in for a copy, by request: a lookup where there is one, else neural."""
        found: dict[str, Fallback] = {}
        asks, tallies = [], []
        for ask, row, _, neural in weighed:
            if not neural:
                continue
            if row.settings.lookup_ngram:
                ids = look_up(row.sources, ask.ledger, row.settings.lookup_ngram, neural)
                if ids:
                    found[ask.request_id] = Fallback("lookup", ids)
                    continue
            asks.append(NeuralAsk(ask.request_id, ask.ledger, neural))
            tallies.append(ask.tally)
        if asks and self._neural is not None:
            began_s = time.monotonic()
            for asked, drafted in zip(asks, self._neural.draft(asks), strict=True):
                found[asked.request_id] = Fallback("neural", tuple(drafted))
            for tally in tallies:  # each of them has waited for all
                tally.neural_s += time.monotonic() - began_s
        return found

    def _keep_early(self, index: IndexReady) -> None:
        if index.request_id in self._ended:  # it took longer than its request
            return
        self._early.setdefault(index.request_id, []).append(index)
        while len(self._early) > EARLY_INDEXES:
            self._early.popitem(last=False)


def _why_nothing(row: _Row) -> Declined:
    if row.settings.is_off:
        return "turned_off"
    return row.policy.declined if row.proposed is None else "forbidden"
