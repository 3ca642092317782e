"""One round of one row, as a policy sees it."""

from collections.abc import Callable
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
    # The neural drafter's tokens, at most as many as asked for; None without one.
    ask_neural: Callable[[int], Fallback] | None
