from collections.abc import Sequence

import numpy as np

from services.engine.drafting.candidates import across_candidate
from services.engine.drafting.cost import RoundCost
from services.engine.drafting.draft import Draft
from services.engine.drafting.neural import NeuralAsk
from services.engine.drafting.router import DraftRouter
from services.engine.drafting.settings import DraftSettings
from services.engine.drafting.sources import Place
from services.engine.ledger import Ledger
from services.engine.tally import Tally
from shared.matching.segment import SegmentIndex
from shared.messages import IndexedSource, IndexReady

OLD = np.arange(1000, 1200, dtype=np.int32)
WIDTH = 63
SETTINGS = DraftSettings(policy="adaptive", width=WIDTH, min_match=1)
BOUNDARY = 7


class Replay:
    """One request whose output is known: each round accepts what agrees with it."""

    def __init__(
        self,
        output: "np.ndarray | list[int]",
        source: np.ndarray = OLD,
        *,
        cost: float = 0.007,
        min_match: int = 1,
        neural: "Neural | None" = None,
    ) -> None:
        self.output = np.asarray(output, np.int32)
        settings = DraftSettings(
            policy="adaptive",
            width=WIDTH,
            min_match=min_match,
            boundary_ids=(BOUNDARY,),
            neural_width=neural.width if neural else 0,
        )
        self.router = DraftRouter(settings, cost=RoundCost.linear(cost), neural=neural)
        self.ledger = Ledger(np.array([1, 2, 3], np.int32), len(self.output))
        self.ledger.append(self.output[:1].tolist())
        self.tally = Tally(0.0, WIDTH)
        self.drafts: list[Draft | None] = []
        if neural is not None:
            neural.output = self.output
        built = SegmentIndex.build(source, (BOUNDARY,))
        held = IndexedSource(kind="derived", tokens=built.tokens, order=built.order)
        self.router.begin("r", expect_index=True)
        self.router.add_index(IndexReady(request_id="r", sources=(held,), build_s=0.0))

    def round(self) -> Draft | None:
        self.router.begin_pass(1, 1)
        draft = self.router.propose("r", self.ledger, WIDTH, self.tally)
        rest = self.output[self.ledger.output_len :]
        drafts = np.array(draft.token_ids if draft else (), np.int32)[: len(rest)]
        differ = np.flatnonzero(drafts != rest[: len(drafts)])
        accepted = int(differ[0]) if len(differ) else len(drafts)
        self.ledger.append(rest[: accepted + 1].tolist())
        self.router.observe("r", self.ledger, draft, accepted)
        self.drafts.append(draft)
        return draft

    def run(self) -> "Replay":
        while self.ledger.output_len < len(self.output):
            self.round()
        return self


class Neural:
    """Right for `right` tokens of each three."""

    width = 3

    def __init__(self, right: int) -> None:
        self.right = right
        self.output = np.empty(0, np.int32)

    def draft(self, asks: Sequence[NeuralAsk]) -> list[list[int]]:
        drafts = []
        for ask in asks:
            done = ask.ledger.output_len
            ids: list[int] = self.output[done : done + min(ask.budget, self.width)].tolist()
            right = [token if i < self.right else token + 5000 for i, token in enumerate(ids)]
            drafts.append(right)
        return drafts

    def cost(self, drafts: int) -> float:
        return 0.0


def drafted(draft: Draft | None) -> int:
    return len(draft.token_ids) if draft else 0


def test_one_matching_token_licenses_a_copy() -> None:
    draft = Replay(OLD[50:60]).round()
    assert draft is not None
    assert (draft.position, draft.match_length) == (51, 1)
    assert draft.token_ids[0] == OLD[51]


def test_an_explicit_minimum_is_a_floor() -> None:
    replay = Replay(OLD[50:90], min_match=4)
    assert [drafted(replay.round()) for _ in range(3)] == [0, 0, 0]
    assert drafted(replay.round()) > 0


def test_more_evidence_makes_wider_drafts() -> None:
    replay = Replay(OLD[:150]).run()
    widths = [drafted(draft) for draft in replay.drafts]
    assert widths[0] < widths[1] <= max(widths) == WIDTH


def test_dear_columns_make_narrower_drafts() -> None:
    cheap, dear = (drafted(Replay(OLD[50:60], cost=cost).round()) for cost in (0.002, 0.2))
    assert dear < cheap


def test_a_long_context_makes_narrower_drafts() -> None:
    def first(per_attended: float) -> int:
        cost = RoundCost({1: 1.0, 65: 1.3}, follows=False, per_attended=per_attended)
        replay = Replay(OLD[50:60])
        replay.ledger = Ledger(np.arange(1, 2000, dtype=np.int32) + 5000, 10)
        replay.ledger.append(OLD[50:51].tolist())
        router = DraftRouter(SETTINGS, cost=cost)
        router.begin("r", expect_index=False)
        router.add_sources("r", [("session", SegmentIndex.build(OLD))])
        return drafted(router.propose("r", replay.ledger, WIDTH, replay.tally))

    assert first(0.0) > first(0.0005)


def test_a_whole_file_is_copied_in_a_few_rounds() -> None:
    assert len(Replay(OLD).run().drafts) <= 8


def test_no_draft_crosses_a_boundary() -> None:
    source = OLD.copy()
    source[20] = BOUNDARY
    replay = Replay(OLD[:60], source).run()
    assert all(BOUNDARY not in draft.token_ids for draft in replay.drafts if draft)
    assert all(-1 not in draft.token_ids for draft in replay.drafts if draft)


def test_a_copy_goes_on_behind_a_changed_token() -> None:
    output = OLD[:100].copy()
    output[60] = 5
    replay = Replay(output).run()
    later = [d for d in replay.drafts if d and d.position > 60]
    assert (later[0].position, later[0].match_length) == (61, 0)


def test_the_text_behind_a_change_is_guessed_only_for_a_few_tokens() -> None:
    source = SegmentIndex.build(OLD[:70])
    guesses = [across_candidate(Place(source, 60), behind, 15) for behind in range(7)]
    assert [(g.at.position, g.available) if g else None for g in guesses] == [
        None,
        *((60 + behind, 10 - behind) for behind in (1, 2, 3, 4)),
        None,
        None,
    ]
    assert across_candidate(Place(source, 68), 2, 15) is None


def test_an_explicit_minimum_leaves_no_guesses() -> None:
    output = OLD[:100].copy()
    output[60] = 5
    replay = Replay(output, min_match=4).run()
    assert all(d.match_length >= 4 for d in replay.drafts if d)


def test_of_equal_places_the_one_in_like_surroundings_is_copied() -> None:
    """The token 9 stands in three places; the output's other tokens surround the middle one."""
    places = [np.append(OLD[n : n + 20], [9, 50 + n, 51 + n, BOUNDARY]) for n in (0, 40, 80)]
    shuffled = OLD[40:60][::-1]
    replay = Replay([*shuffled, 9, 90, 91], np.concatenate(places).astype(np.int32))
    while replay.ledger.output_len < 21:
        replay.round()
    draft = replay.round()
    assert draft is not None
    assert draft.match_length == 1
    assert draft.token_ids[0] == 90


def test_an_ambiguous_token_is_looked_for_where_the_copy_broke() -> None:
    """The token behind the change stands in a newer place too; the copy stays in its own."""
    source = np.concatenate([OLD[:100], [BOUNDARY, OLD[63], 1, 2, 3]]).astype(np.int32)
    output = np.concatenate([OLD[:60], [5, 6], OLD[63:100]])
    replay = Replay(output, source)
    while replay.ledger.output_len < 63:
        replay.round()
    assert replay.ledger.tokens[-1] == OLD[63]
    draft = replay.round()
    assert draft is not None
    assert draft.position == 64


def test_a_good_neural_drafter_is_not_displaced_by_weak_copies() -> None:
    rng = np.random.default_rng(3)
    output = rng.integers(10, 14, 300)  # every token stands everywhere: copies say nothing
    replay = Replay(output, OLD, neural=Neural(right=3)).run()
    kinds = [draft.neural > 0 for draft in replay.drafts[40:] if draft]
    assert sum(kinds) > 0.8 * len(kinds)


def test_a_poor_neural_drafter_gives_way_to_copies() -> None:
    replay = Replay(OLD, neural=Neural(right=0)).run()
    assert sum(draft.neural > 0 for draft in replay.drafts[5:] if draft) == 0


def test_neural_tokens_lead_back_into_the_copy() -> None:
    """The bridge: neural tokens first, and behind them the copy in which they end."""
    output = np.concatenate([OLD[:60], [5, 6, 7000], OLD[63:100]])
    replay = Replay(output, neural=Neural(right=3)).run()
    bridges = [draft for draft in replay.drafts if draft and draft.neural and draft.copied]
    assert bridges
    assert any(draft.token_ids[draft.neural] == OLD[draft.position] for draft in bridges)


def test_the_same_rounds_give_the_same_drafts() -> None:
    output = np.concatenate([OLD[:60], [5, 6], OLD[63:100]])
    assert Replay(output).run().drafts == Replay(output).run().drafts


def test_nothing_is_copied_for_a_request_whose_copies_never_hold() -> None:
    rng = np.random.default_rng(5)
    replay = Replay(rng.integers(10, 2000, 400), rng.integers(10, 2000, 400), cost=0.05).run()
    late = [drafted(draft) for draft in replay.drafts[200:]]
    assert sum(late) < 0.2 * len(late)


def test_the_prompts_own_pass_is_no_round_to_learn_from() -> None:
    """It commits one token at the price of the whole prompt, without having proposed anything."""
    replay, disturbed = Replay(OLD[50:90]), Replay(OLD[50:90])
    disturbed.router.observe("r", disturbed.ledger, None, 0)
    assert disturbed.round() == replay.round()
