from collections.abc import Sequence

import numpy as np

from services.engine.drafting.neural import NeuralAsk
from services.engine.drafting.router import Ask, DraftRouter
from services.engine.drafting.settings import DraftSettings
from services.engine.ledger import Ledger
from services.engine.tally import Tally
from shared.matching.segment import SegmentIndex
from shared.messages import IndexedSource, IndexReady, Speculation

TEXT = np.arange(100, 160, dtype=np.int32)


def index_of(request_id: str, tokens: np.ndarray = TEXT) -> IndexReady:
    built = SegmentIndex.build(tokens)
    source = IndexedSource(kind="derived", tokens=built.tokens, order=built.order)
    return IndexReady(request_id=request_id, sources=(source,), build_s=0.0)


def make_router(width_neural: int = 0) -> DraftRouter:
    return DraftRouter(
        DraftSettings(policy="fixed", width=15, min_match=4, neural_width=width_neural)
    )


def ledger() -> Ledger:
    """A prompt that shares nothing with TEXT, then output that repeats six of its tokens."""
    made = Ledger(np.arange(10, dtype=np.int32), 100)
    made.append(TEXT[:6].tolist())
    return made


def proposed(router: DraftRouter, tally: Tally | None = None) -> tuple[int, ...]:
    draft = router.propose("r", ledger(), 15, tally or Tally(0.0, 15))
    return draft.token_ids if draft else ()


def test_a_copy_continues_the_longest_match() -> None:
    router = make_router()
    router.begin("r", expect_index=True)
    router.add_index(index_of("r"))
    assert proposed(router) == tuple(range(106, 121))


def test_an_index_that_overtakes_its_request_is_kept_for_it() -> None:
    router = make_router()
    router.add_index(index_of("r"))
    router.begin("r", expect_index=True)
    assert proposed(router)


def test_an_index_later_than_its_request_is_not_kept() -> None:
    router = make_router()
    router.begin("r", expect_index=True)
    router.release("r")
    router.add_index(index_of("r"))
    router.begin("r", expect_index=True)
    assert proposed(router) == ()


def test_rounds_without_the_awaited_index_are_counted() -> None:
    router = make_router()
    router.begin("r", expect_index=True)
    tally = Tally(0.0, 15)
    assert proposed(router, tally) == ()
    assert tally.index_wait_rounds == 1


def test_a_malformed_index_costs_only_the_copies() -> None:
    router = make_router()
    router.begin("r", expect_index=True)
    bad = IndexedSource(kind="prompt", tokens=TEXT, order=np.array([1000], dtype=np.int32))
    router.add_index(IndexReady(request_id="r", sources=(bad,), build_s=0.0))
    assert proposed(router) == ()


def test_a_short_tail_gives_way_to_the_neural_width_and_is_counted() -> None:
    router = make_router(width_neural=5)
    router.begin("r", expect_index=True)
    router.add_index(index_of("r", TEXT[:12]))
    tally = Tally(0.0, 15)
    assert proposed(router, tally) == ()
    assert tally.handoffs == 1


def test_without_copies_nothing_is_proposed() -> None:
    router = DraftRouter(None)
    router.begin("r", expect_index=False)
    router.add_index(index_of("r"))
    assert proposed(router) == ()
    router.release("r")


class Counting:
    """A neural drafter that counts upwards."""

    width = 3

    def draft(self, asks: Sequence[NeuralAsk]) -> list[list[int]]:
        return [list(range(ask.budget)) for ask in asks]

    def cost(self, drafts: int) -> float:
        return 0.0


def test_sources_from_elsewhere_are_copied_from_too() -> None:
    router = make_router()
    router.begin("r", expect_index=False)
    assert router.add_sources("r", [("session", SegmentIndex.build(TEXT))])
    draft = router.propose("r", ledger(), 15, Tally(0.0, 15))
    assert draft is not None
    assert (draft.kind, draft.position, draft.match_length) == ("session", 6, 6)


def test_the_requests_own_sources_win_ties() -> None:
    router = make_router()
    router.begin("r", expect_index=True)
    router.add_index(index_of("r"))
    router.add_sources("r", [("session", SegmentIndex.build(TEXT))])
    draft = router.propose("r", ledger(), 15, Tally(0.0, 15))
    assert draft is not None
    assert draft.kind == "derived"


def test_sources_for_a_request_that_ended_are_not_taken() -> None:
    router = make_router()
    assert not router.add_sources("r", [("session", SegmentIndex.build(TEXT))])


def test_a_round_without_a_copy_verifies_the_neural_drafts() -> None:
    router = DraftRouter(
        DraftSettings(policy="fixed", width=15, min_match=4, neural_width=3), neural=Counting()
    )
    router.begin("r", expect_index=False)
    draft = router.propose("r", ledger(), 2, Tally(0.0, 15))
    assert draft is not None
    assert (draft.kind, draft.token_ids, draft.copied) == ("neural", (0, 1), 0)


def test_the_neural_drafter_is_asked_once_for_all_rows_that_copy_nothing() -> None:
    """Rows with a copy verify it beside the others' neural drafts, in one pass."""
    calls: list[list[str]] = []

    class Recording(Counting):
        def draft(self, asks: Sequence[NeuralAsk]) -> list[list[int]]:
            calls.append([ask.request_id for ask in asks])
            return super().draft(asks)

    settings = DraftSettings(policy="fixed", width=15, min_match=4, neural_width=3)
    router = DraftRouter(settings, neural=Recording())
    for name in ("plain", "copies", "plain too"):
        router.begin(name, expect_index=False)
    router.add_sources("copies", [("session", SegmentIndex.build(TEXT))])
    tally = Tally(0.0, 15)
    asks = [Ask(name, ledger(), 15, tally) for name in ("plain", "copies", "plain too")]
    drafts = router.propose_all(asks)
    assert calls == [["plain", "plain too"]]
    assert {name: (d.kind, len(d.token_ids)) for name, d in drafts.items()} == {
        "plain": ("neural", 3),
        "copies": ("session", 15),
        "plain too": ("neural", 3),
    }


def test_a_request_that_wants_no_neural_drafts_is_not_asked_for() -> None:
    settings = DraftSettings(policy="fixed", width=15, min_match=4, neural_width=3)
    router = DraftRouter(settings, neural=Counting())
    router.begin("r", expect_index=False, wanted=Speculation(draft_tokens=0))
    assert router.propose("r", ledger(), 15, Tally(0.0, 15)) is None
