"""`--ngram-policy fixed`: the longest match of a minimum length, with the tail handoff."""

import numpy as np

from services.engine.drafting.draft import Draft
from services.engine.drafting.round import Round
from services.engine.drafting.sources import Place
from services.engine.ledger import Ledger
from shared.matching.contexts import DEPTH
from shared.matching.handoff import LOOKAHEAD_TOKENS, hand_off
from shared.matching.lookup import continuation, find


class FixedPolicy:
    """A copy wherever there is one, else the neural drafts. Keeps nothing from round to round."""

    def __init__(self, *, min_match: int, neural_width: int) -> None:
        self._min_match = min_match
        self._neural_width = neural_width

    def propose(self, row: Round) -> Draft | None:
        copied = self._copy(row)
        if copied is not None or row.ask_neural is None:
            return copied
        kind, ids = row.ask_neural(min(row.room, self._neural_width))
        return Draft(ids, kind, neural=len(ids), neural_kind=kind) if ids else None

    def observe(self, ledger: Ledger, draft: Draft | None, accepted: int) -> None:
        """The ledger itself says what to look up next."""

    def _copy(self, row: Round) -> Draft | None:
        if row.copy_room < 1:
            return None
        indexes = row.sources.indexes
        match = find(
            row.ledger.tokens[-DEPTH:],
            indexes,
            row.copy_room + LOOKAHEAD_TOKENS,
            min_match=self._min_match,
            wrap=True,
        )
        if match is None:
            return None
        handoff = hand_off(match.available, row.copy_room, self._neural_width)
        row.tally.handoffs += handoff.handed_off
        if not handoff.drafts:
            return None
        copied: np.ndarray = continuation(match, indexes)[: handoff.drafts]
        kind = row.sources.kind_of(Place(indexes[match.source], match.position))
        return Draft(tuple(copied.tolist()), kind, match.position, match.length)
