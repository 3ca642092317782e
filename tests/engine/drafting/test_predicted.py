"""A caller's predicted output drafts from the first token, without any match."""

import numpy as np
import pytest

from services.engine.drafting.draft import Draft
from services.engine.drafting.router import DraftRouter
from services.engine.drafting.settings import DraftSettings, Policy
from services.engine.ledger import Ledger
from services.engine.tally import Tally
from shared.matching.segment import SegmentIndex
from shared.messages import IndexedSource, IndexReady

PREDICTED = np.arange(500, 600, dtype=np.int32)
POLICIES = pytest.mark.parametrize("policy", ["fixed", "adaptive"])


def proposed(policy: Policy, output: "list[int] | np.ndarray", width: int = 15) -> Draft | None:
    settings = DraftSettings(policy=policy, width=width, min_match=12 if policy == "fixed" else 1)
    router = DraftRouter(settings)
    index = SegmentIndex.build(PREDICTED)
    source = IndexedSource(kind="predicted", tokens=index.tokens, order=index.order)
    router.begin("r", expect_index=True)
    router.add_index(IndexReady(request_id="r", sources=(source,), build_s=0.0))
    ledger = Ledger(np.array([1, 2, 3], np.int32), 200)
    ledger.append(output)
    return router.propose("r", ledger, width, Tally(0.0, width))


@POLICIES
@pytest.mark.parametrize("done", [1, 2, 11, 63, 64, 70])
def test_it_goes_on_as_long_as_the_output_follows_it(policy: Policy, done: int) -> None:
    draft = proposed(policy, PREDICTED[:done])
    assert draft is not None
    assert (draft.kind, draft.position) == ("predicted", done)
    assert draft.token_ids == tuple(PREDICTED[done : done + 15].tolist())


def test_the_first_token_licenses_a_full_width() -> None:
    draft = proposed("adaptive", PREDICTED[:1], width=63)
    assert draft is not None
    assert len(draft.token_ids) >= 48


def test_an_output_that_begins_otherwise_has_no_prediction_to_follow() -> None:
    assert proposed("fixed", [9, 10, 11]) is None
    assert proposed("adaptive", [9, 10, 11]) is None


def test_behind_a_deviation_the_fixed_policy_wants_a_match_of_its_minimum_again() -> None:
    assert proposed("fixed", [*PREDICTED[:20], 9, *PREDICTED[21:30]]) is None
    draft = proposed("fixed", [*PREDICTED[:20], 9, *PREDICTED[21:33]])
    assert draft is not None
    assert (draft.position, draft.match_length) == (33, 12)


@POLICIES
def test_a_finished_prediction_drafts_nothing_more(policy: Policy) -> None:
    assert proposed(policy, PREDICTED) is None
