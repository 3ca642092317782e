"""`--ngram-policy fixed`: the longest match of a minimum length, with the tail handoff."""

from typing import NamedTuple

import numpy as np

from services.engine.drafting.draft import Draft
from services.engine.drafting.round import Fallback, Round, Wanted
from services.engine.drafting.sources import Place
from services.engine.ledger import Ledger
from shared.matching.contexts import DEPTH, ledger_query
from shared.matching.handoff import LOOKAHEAD_TOKENS, hand_off
from shared.matching.lookup import find
from shared.messages import Declined


class _Found(NamedTuple):
    at: Place
    length: int  # of the match
    available: int  # tokens behind it, clipped at the room and the lookahead


class FixedPolicy:
    """A copy wherever there is one, else the neural drafts. One object is one request's."""

    def __init__(self, *, min_match: int, neural_width: int) -> None:
        self._min_match = min_match
        self._neural_width = neural_width
        self.declined: Declined = "no_match"  # why the last round copied nothing
        self._copied: Draft | None = None
        self._cursor: tuple[Place, int] | None = None  # where an archive copy began, ledger length

    def weigh(self, row: Round) -> Wanted:
        """The copy, else as many neural drafts as there is room for."""
        self._copied = self._copy(row)
        if self._copied is not None:
            return Wanted(0, len(self._copied.token_ids))
        return Wanted(row.neural_room, row.neural_room)

    def propose(self, row: Round, fallback: Fallback | None) -> Draft | None:
        """Of the round that was weighed last."""
        if self._copied is not None or fallback is None or not fallback.token_ids:
            return self._copied
        kind, ids = fallback
        return Draft(ids, kind, neural=len(ids), neural_kind=kind)

    def observe(self, ledger: Ledger, draft: Draft | None, accepted: int) -> None:
        """The ledger itself says what to look up next."""

    def _copy(self, row: Round) -> Draft | None:
        self.declined = "no_match"
        if row.copy_room < 1:
            return None
        found = self._resumed(row) or self._found(row) or self._predicted(row)
        self._cursor = None
        if found is None:
            return None
        at, length, available = found
        handoff = hand_off(available, row.copy_room, self._neural_width)
        row.tally.handoffs += handoff.handed_off
        if not handoff.drafts:
            self.declined = "source_ends"
            return None
        copied: np.ndarray = at.source.continuation(at.position, available)[: handoff.drafts]
        kind = row.sources.kind_of(at)
        if kind == "session":
            self._cursor = at, len(row.ledger)
        return Draft(tuple(copied.tolist()), kind, at.position, length)

    def _found(self, row: Round) -> _Found | None:
        indexes = row.sources.indexes
        limit = row.copy_room + LOOKAHEAD_TOKENS
        query = row.ledger.tokens[-DEPTH:]
        match = find(query, indexes, limit, min_match=self._min_match, wrap=True)
        if match is None:
            return None
        return _Found(Place(indexes[match.source], match.position), match.length, match.available)

    def _predicted(self, row: Round) -> _Found | None:
        """The caller's prediction needs no match as long as all output has followed it."""
        at = row.sources.in_prediction(row.ledger)
        if at is None:
            return None
        available = at.source.available(at.position, row.copy_room + LOOKAHEAD_TOKENS)
        return _Found(at, row.ledger.output_len, available)

    def _resumed(self, row: Round) -> _Found | None:
        """An archive copy goes on without a lookup if what was committed is what stands there,
        and if its source does not end soon."""
        if self._cursor is None or not row.sources.holds(self._cursor[0]):
            return None
        began, ledger_len = self._cursor
        at = Place(began.source, began.position + len(row.ledger) - ledger_len)
        limit = row.copy_room + LOOKAHEAD_TOKENS
        length = at.source.match_length(at.position, ledger_query(row.ledger.tokens))
        if length < max(self._min_match, min(at.position, DEPTH)):
            return None
        if at.source.available(at.position, limit) < limit:
            return None
        row.tally.resumes += 1
        return _Found(at, length, limit)
