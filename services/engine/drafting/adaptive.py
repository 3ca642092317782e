"""`--ngram-policy adaptive`: any match length, as many drafts as the evidence supports.

One object is one request's state. A round is `propose`, then `observe`; what is learned in between
comes from past rounds only.
"""

from collections.abc import Sequence

from services.engine.drafting.candidates import (
    ACROSS,
    NEAR,
    ON_TRACK,
    UNIQUE,
    Candidate,
    across_candidate,
    best_candidate,
    bridge_candidate,
)
from services.engine.drafting.cost import RoundCost
from services.engine.drafting.draft import Draft
from services.engine.drafting.evidence import Evidence, Survival, Width, best_width
from services.engine.drafting.neural_window import NeuralWindow
from services.engine.drafting.round import Fallback, Round, Wanted
from services.engine.drafting.sources import Place, RequestSources
from services.engine.drafting.surroundings import Surroundings
from services.engine.ledger import Ledger
from shared.matching.contexts import DEPTH, ledger_query, query_bytes
from shared.messages import Declined

# Tokens by cost of the rounds so far, and a margin: a column that barely pays adds noise.
RATE_MARGIN = 1.1
RATE_DECAY = 0.9
START_TOKENS, START_COST = 6.0, 2.0
RECENT_DECAY = 0.8
RECENT_CAP = 16
WEAK_MATCH = 8  # tokens; a failed guess below does not move the last break


class AdaptivePolicy:
    def __init__(
        self, survival: Survival, cost: RoundCost, *, min_match: int, window: NeuralWindow
    ) -> None:
        self._survival = survival
        self._cost = cost
        self._min_match = min_match
        self._window = window
        self._surroundings = Surroundings()
        # of the round that is being weighed
        self._rate = 0.0
        self._added: Sequence[float] = ()
        self._copied: Draft | None = None
        self._track: Place | None = None  # where the last copy goes on
        # where the last copy stopped being right; as long as it goes on, the same as `_track`
        self._broken: Place | None = None
        self._broken_at = 0  # the ledger's index of the token that stands there instead
        self._recent = 0.0
        self._tokens, self._spent = START_TOKENS, START_COST
        self._proposed_at: int | None = None  # the ledger's length at a proposal without verdict
        self._round_cost = 1.0
        self.declined: Declined = "no_match"  # why the last round copied nothing
        self.candidate: Candidate | None = None
        self.evidence: Evidence | None = None

    def weigh(self, row: Round) -> Wanted:
        """Finds the best copy, and whether the neural drafter is worth more."""
        self._rate = RATE_MARGIN * self._tokens / self._spent
        self._added = self._cost.added(row.columns, row.room, len(row.ledger))
        self._copied, value = self._copy(row)
        copied = len(self._copied.token_ids) if self._copied else 0
        if not row.neural_room:
            return Wanted(0, copied)
        costs = [row.neural_costs[n] + self._added[n] for n in range(row.neural_room + 1)]
        asked = self._window.choose(row.neural_room, costs, self._rate)
        if asked.drafts and asked.value >= value:
            return Wanted(asked.drafts, asked.drafts)
        if self._copied is None and self._window.is_probe_due():
            return Wanted(row.neural_room, row.neural_room)
        return Wanted(0, copied)

    def propose(self, row: Round, fallback: Fallback | None) -> Draft | None:
        """Of the round that was weighed last, with what the neural drafter answered."""
        draft = self._copied
        spent = 0.0
        if fallback is not None and fallback.token_ids:
            draft = self._bridge(row, fallback)
            spent = row.neural_costs[len(fallback.token_ids)]
        elif draft is not None:
            assert self.candidate is not None
            row.tally.resumes += self.candidate.place == ON_TRACK
        drafted = len(draft.token_ids) if draft else 0
        cost = self._cost.of(row.columns + drafted, len(row.ledger))
        self._round_cost = cost / row.rows + spent
        self._proposed_at = len(row.ledger)
        return draft

    def observe(self, ledger: Ledger, draft: Draft | None, accepted: int) -> None:
        """The round has committed: `ledger` holds the first `accepted` tokens of `draft`."""
        if self._proposed_at is None:  # the prompt's own pass
            return
        committed = len(ledger) - self._proposed_at
        self._proposed_at = None
        self._tokens = RATE_DECAY * self._tokens + committed
        self._spent = RATE_DECAY * self._spent + self._round_cost
        self._recent = RECENT_DECAY * self._recent + (1 - RECENT_DECAY) * min(accepted, RECENT_CAP)
        if draft is None or not draft.neural:
            self._window.skip()
        else:
            self._window.observe(draft.neural, min(accepted, draft.neural))
        if draft is None:
            return
        if draft.copied and self.candidate is not None and self.evidence is not None:
            kept = accepted - draft.neural
            if kept >= 0:
                self._survival.observe(self.evidence, draft.copied, kept)
                self._follow(ledger, self.candidate, kept)

    def _copy(self, row: Round) -> tuple[Draft | None, float]:
        if self._broken is not None and not row.sources.holds(self._broken):
            self._track = self._broken = None
        query = ledger_query(row.ledger.tokens)
        room = row.copy_room
        at = row.sources.in_prediction(row.ledger)
        if at is not None:
            # all of the output agrees with what the caller announced: as good as the longest match
            left = at.source.available(at.position, room)
            candidate = Candidate(at, DEPTH, ON_TRACK, UNIQUE, left) if left else None
        else:
            candidate = best_candidate(
                row.sources,
                query,
                self._track,
                self._broken,
                room,
                surroundings=self._surroundings,
            )
            if candidate is None and self._broken is not None and self._min_match <= 1:
                behind = len(row.ledger) - self._broken_at
                candidate = across_candidate(self._broken, behind, room)
        if candidate is None or candidate.length < self._min_match:
            self.candidate = None
            self.declined = "no_match"
            return None, 0.0
        self.declined = "not_worth"
        self.candidate = candidate
        self.evidence = Evidence(candidate.place, candidate.length, candidate.ties, self._recent)
        hazards = self._survival.hazards(self.evidence)
        width = best_width(hazards, min(room, candidate.available), self._added, self._rate)
        if not width.drafts:
            return None, 0.0
        return _draft(row.sources, candidate, width), width.value

    def _bridge(self, row: Round, neural: Fallback) -> Draft:
        """The neural tokens, and behind them the copy that they lead to near the last break."""
        tokens = len(neural.token_ids)
        plain = Draft(neural.token_ids, neural.kind, neural=tokens, neural_kind=neural.kind)
        self.candidate = None
        left = min(row.copy_room, row.room - tokens)
        if self._broken is None or left < 1:
            return plain
        tail = [*row.ledger.tokens[-DEPTH:].tolist(), *neural.token_ids]
        candidate = bridge_candidate(query_bytes(tail), self._broken, left)
        if candidate is None:
            return plain
        self.evidence = Evidence(NEAR, candidate.length, candidate.ties, self._recent)
        reached = min(1.0, self._window.expected(tokens) / tokens)
        more = [cost - self._added[tokens] for cost in self._added[tokens:]]
        hazards = self._survival.hazards(self.evidence)
        width = best_width(hazards, min(left, candidate.available), more, self._rate, reached)
        if not width.drafts:
            return plain
        self.candidate = candidate
        return _draft(row.sources, candidate, width, neural)

    def _follow(self, ledger: Ledger, candidate: Candidate, kept: int) -> None:
        """Keeps track of the copy: it goes on behind what was committed, or it broke there."""
        lost = self._track is None and self._broken is not None
        if kept == 0 and lost and candidate.length < WEAK_MATCH:
            return
        source, position = candidate.at.source, candidate.at.position + kept
        goes_on = source.available(position, 1) > 0
        if goes_on and source.token_at(position) == int(ledger.tokens[-1]):
            self._track = self._broken = Place(source, position + 1)
        else:
            self._track, self._broken = None, Place(source, position)
            self._broken_at = len(ledger) - 1


def _draft(
    sources: RequestSources, candidate: Candidate, width: Width, before: Fallback | None = None
) -> Draft:
    at = candidate.at
    neural = before.token_ids if before else ()
    copied = tuple(at.source.continuation(at.position, width.drafts).tolist())
    return Draft(
        neural + copied,
        sources.kind_of(at),
        at.position,
        0 if candidate.place == ACROSS else candidate.length,
        len(neural),
        before.kind if before else "neural",
    )
