"""One round of one row, as a policy sees it."""

from collections.abc import Sequence
from typing import Literal, NamedTuple

from services.engine.drafting.sources import RequestSources
from services.engine.ledger import Ledger
from services.engine.tally import Tally


class Fallback(NamedTuple):
    """What a neural round verifies."""

    kind: Literal["lookup", "neural"]
    token_ids: tuple[int, ...]  # may be empty


class Round(NamedTuple):
    sources: RequestSources  # with all of `ledger`'s output indexed
    ledger: Ledger
    room: int  # most drafts, at least 1
    copy_room: int  # most copied ones
    tally: Tally
    columns: int  # of the pass so far, this row's anchor included
    rows: int  # of the pass
    neural_room: int  # most neural drafts (or looked-up ones); 0 without a drafter
    neural_costs: Sequence[float]  # [neural_room + 1], of drafting so many, in passes of one column


class Wanted(NamedTuple):
    """What a policy has decided before the neural drafter is asked."""

    neural: int  # drafts to ask it for
    columns: int  # that the row will add to the pass, as far as known
