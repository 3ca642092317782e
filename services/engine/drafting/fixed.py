"""`--ngram-policy fixed`: the longest match of a minimum length, with the tail handoff."""

import numpy as np

from services.engine.drafting.draft import Draft
from services.engine.drafting.sources import Place, RequestSources
from services.engine.ledger import Ledger
from services.engine.tally import Tally
from shared.matching.contexts import DEPTH
from shared.matching.handoff import LOOKAHEAD_TOKENS, hand_off
from shared.matching.lookup import continuation, find


class FixedPolicy:
    """Keeps nothing from round to round."""

    def __init__(self, min_match: int, neural_width: int) -> None:
        self._min_match = min_match
        self._neural_width = neural_width

    def propose(
        self, sources: RequestSources, ledger: Ledger, room: int, tally: Tally
    ) -> Draft | None:
        match = find(
            ledger.tokens[-DEPTH:],
            sources.indexes,
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
        copied: np.ndarray = continuation(match, sources.indexes)[: handoff.drafts]
        at = Place(sources.indexes[match.source], match.position)
        return Draft(tuple(copied.tolist()), sources.kind_of(at), match.position, match.length)
