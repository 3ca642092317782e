import numpy as np

from services.engine.drafting.lookup_ngram import look_up
from services.engine.drafting.router import DraftRouter
from services.engine.drafting.settings import DraftSettings
from services.engine.drafting.sources import RequestSources
from services.engine.ledger import Ledger
from services.engine.tally import Tally
from shared.matching.segment import SegmentIndex
from shared.messages import IndexedSource, IndexReady, SourceKind


def source(kind: SourceKind, *tokens: int) -> IndexedSource:
    index = SegmentIndex.build(np.array(tokens, np.int32))
    return IndexedSource(kind=kind, tokens=index.tokens, order=index.order)


def ledger(prompt: list[int], output: list[int]) -> Ledger:
    made = Ledger(np.array(prompt, np.int32), 100)
    made.append(output)
    return made


def looked_up(prompt: list[int], output: list[int], ngram: int, width: int = 3) -> tuple[int, ...]:
    sources = RequestSources((), awaiting=True)
    held = (source("prompt", *prompt), source("derived", 4, 5, 99, 99))
    sources.add_index(IndexReady(request_id="r", sources=held, build_s=0.0))
    made = ledger(prompt, output)
    sources.follow(made)
    return look_up(sources, made, ngram, width)


def test_what_followed_the_last_tokens_is_drafted_within_the_window() -> None:
    assert looked_up([1, 2, 4, 5, 6, 7, 8, 9], [3, 4, 5], ngram=2) == (6, 7, 8)


def test_the_most_recent_occurrence_counts_also_if_an_older_match_is_longer() -> None:
    assert looked_up([3, 4, 5, 6, 0, 4, 5, 7], [3, 4, 5], ngram=2) == (7,)


def test_output_is_more_recent_than_the_prompt() -> None:
    assert looked_up([4, 5, 6], [4, 5, 8, 4, 5], ngram=2) == (8, 4, 5)


def test_derived_sources_are_not_looked_up() -> None:
    assert looked_up([1, 2, 3], [4, 5], ngram=2) == ()


def test_a_shorter_repetition_is_no_occurrence() -> None:
    assert looked_up([1, 4, 5, 6], [2, 4, 5], ngram=3) == ()


def test_a_round_without_a_copy_is_a_lookup_round_and_counted_as_one() -> None:
    settings = DraftSettings(policy="fixed", width=15, min_match=4, neural_width=5, lookup_ngram=2)
    router = DraftRouter(settings)
    router.begin("r", expect_index=False)
    tally = Tally(0.0, 15)
    made = ledger([1, 2], [4, 5, 6, 4, 5])
    draft = router.propose("r", made, 15, tally)
    assert draft is not None
    assert (draft.kind, draft.token_ids) == ("lookup", (6, 4, 5))
    tally.count_round(draft, 2, 1)
    assert (tally.sources["lookup"].drafted, tally.sources["lookup"].accepted) == (3, 2)


def test_a_copy_goes_before_a_lookup() -> None:
    settings = DraftSettings(policy="fixed", width=15, min_match=4, neural_width=5, lookup_ngram=2)
    router = DraftRouter(settings)
    router.begin("r", expect_index=True)
    tokens = tuple(range(10, 40))
    router.add_index(IndexReady(request_id="r", sources=(source("prompt", *tokens),), build_s=0))
    draft = router.propose("r", ledger([1], [10, 11, 12, 13, 14]), 15, Tally(0.0, 15))
    assert draft is not None
    assert (draft.kind, len(draft.token_ids)) == ("prompt", 15)
