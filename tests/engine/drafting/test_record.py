"""What a request's record says about its rounds."""

import itertools

import numpy as np

from services.engine.drafting.draft import Draft
from services.engine.drafting.record import MOST_SPANS, DraftRecorder
from services.engine.drafting.router import DraftRouter
from services.engine.drafting.settings import DraftSettings
from services.engine.ledger import Ledger
from services.engine.tally import Tally
from shared.matching.segment import SegmentIndex
from shared.messages import DraftSpan, Speculation

TEXT = np.arange(500, 600, dtype=np.int32)


def router(*, record: bool = True, wanted: Speculation | None = None) -> DraftRouter:
    made = DraftRouter(DraftSettings(policy="fixed", width=15, min_match=4))
    made.begin("r", expect_index=False, record=record, wanted=wanted or Speculation())
    made.add_sources("r", [("session", SegmentIndex.build(TEXT))])
    return made


def ledger(output: "list[int] | np.ndarray") -> Ledger:
    made = Ledger(np.array([1, 2, 3], np.int32), 200)
    made.append(output)
    return made


def spans_of(made: DraftRouter) -> tuple[DraftSpan, ...]:
    record = made.record_of("r")
    assert record is not None
    return record.spans


def run(made: DraftRouter, text: Ledger, accepted: int, then: int) -> None:
    draft = made.propose("r", text, 15, Tally(0.0, 15))
    drafts = draft.token_ids[:accepted] if draft else ()
    text.append([*drafts, then])
    made.observe("r", text, draft, len(drafts))


def test_a_span_says_where_a_copy_came_from_and_how_far_it_held() -> None:
    made, text = router(), ledger(TEXT[:6])
    run(made, text, accepted=9, then=7)
    (span,) = spans_of(made)
    assert (span.start, span.stop, span.declined) == (6, 16, None)
    assert (span.kind, span.position, span.match_length) == ("session", 6, 6)
    assert (span.drafted, span.accepted) == (15, 9)


def test_rounds_that_drafted_nothing_are_one_span_with_their_reason() -> None:
    made, text = router(), ledger([9])
    for token in (10, 11, 12):
        run(made, text, accepted=0, then=token)
    (span,) = spans_of(made)
    assert (span.start, span.stop, span.kind, span.declined) == (1, 4, None, "no_match")


def test_a_request_that_turned_drafting_off_says_so() -> None:
    made = DraftRouter(DraftSettings(policy="adaptive", width=15, min_match=1))
    off = Speculation(ngram_draft_tokens=0, draft_tokens=0)
    made.begin("r", expect_index=False, record=True, wanted=off)
    run(made, ledger(TEXT[:6]), accepted=0, then=7)
    assert spans_of(made)[0].declined == "turned_off"


def test_a_source_that_ends_is_a_reason_of_its_own() -> None:
    made, text = router(), ledger(TEXT[90:99])
    run(made, text, accepted=0, then=9)
    assert spans_of(made)[0].declined == "source_ends"


def test_a_draft_that_the_grammar_cut_away_was_forbidden() -> None:
    made, text = router(), ledger(TEXT[:6])
    assert made.propose("r", text, 15, Tally(0.0, 15)) is not None
    text.append([7])
    made.observe("r", text, None, 0)
    assert spans_of(made)[0].declined == "forbidden"


def test_spans_cover_the_output_behind_the_prefills_token() -> None:
    made, text = router(), ledger(TEXT[:1])
    made.observe("r", text, None, 0)  # the prompt's own pass
    for accepted, then in ((0, 501), (0, 502), (0, 503), (9, 7), (0, 8), (0, 9)):
        run(made, text, accepted, then)
    edges = [(span.start, span.stop) for span in spans_of(made)]
    assert edges[0][0] == 1
    assert edges[-1][1] == text.output_len
    assert all(before[1] == after[0] for before, after in itertools.pairwise(edges))


def test_nothing_is_kept_unless_asked() -> None:
    made = router(record=False)
    run(made, ledger(TEXT[:6]), accepted=1, then=9)
    assert made.record_of("r") is None
    assert made.record_of("unknown") is None


def test_a_record_is_bounded_and_counts_the_rest() -> None:
    recorder = DraftRecorder()
    for start in range(MOST_SPANS + 5):
        recorder.add(start, start + 1, Draft((1,), "prompt"), 0)
    assert (len(recorder.spans), recorder.dropped) == (MOST_SPANS, 5)


def test_a_request_may_ask_for_narrower_copies_and_longer_matches_but_not_for_more() -> None:
    text = ledger(TEXT[:6])
    narrow = router(wanted=Speculation(ngram_draft_tokens=3))
    draft = narrow.propose("r", text, 15, Tally(0.0, 15))
    assert draft is not None
    assert len(draft.token_ids) == 3
    wide = router(wanted=Speculation(ngram_draft_tokens=63, ngram_min_match=1))
    draft = wide.propose("r", text, 63, Tally(0.0, 63))
    assert draft is not None
    assert len(draft.token_ids) == 15
    strict = router(wanted=Speculation(ngram_min_match=7))
    assert strict.propose("r", text, 15, Tally(0.0, 15)) is None
    off = router(wanted=Speculation(ngram_draft_tokens=0))
    assert off.propose("r", text, 15, Tally(0.0, 15)) is None
