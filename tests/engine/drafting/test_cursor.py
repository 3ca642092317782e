"""The fixed policy's copies out of a session's archive go on without a lookup."""

import numpy as np

from services.engine.drafting.router import DraftRouter
from services.engine.drafting.settings import DraftSettings
from services.engine.ledger import Ledger
from services.engine.tally import Tally
from shared.matching.segment import SegmentIndex
from shared.messages import SourceKind

ARCHIVED = np.arange(500, 700, dtype=np.int32)
WIDTH = 15


class Request:
    def __init__(self, kind: SourceKind = "session") -> None:
        self.router = DraftRouter(DraftSettings(policy="fixed", width=WIDTH, min_match=4))
        self.router.begin("r", expect_index=False)
        self.router.add_sources("r", [(kind, SegmentIndex.build(ARCHIVED))])
        self.ledger = Ledger(np.array([1, 2, 3], np.int32), 400)
        self.ledger.append(ARCHIVED[:6])
        self.tally = Tally(0.0, WIDTH)

    def round(self, *, accepted: int, then: int) -> tuple[int, int] | None:
        """Proposes, commits; returns where the draft came from, and its length."""
        draft = self.router.propose("r", self.ledger, WIDTH, self.tally)
        drafts = draft.token_ids[:accepted] if draft else ()
        self.ledger.append([*drafts, then])
        self.router.observe("r", self.ledger, draft, len(drafts))
        return (draft.position, len(draft.token_ids)) if draft else None


def test_an_accepted_copy_is_resumed_where_it_ended() -> None:
    request = Request()
    assert request.round(accepted=15, then=int(ARCHIVED[21])) == (6, 15)
    assert request.tally.resumes == 0
    assert request.round(accepted=15, then=0) == (22, 15)
    assert request.tally.resumes == 1


def test_a_correction_that_differs_ends_it() -> None:
    request = Request()
    request.round(accepted=7, then=9)
    assert request.round(accepted=0, then=9) is None
    assert request.tally.resumes == 0


def test_a_partly_accepted_copy_whose_correction_stands_in_the_source_goes_on() -> None:
    request = Request()
    request.round(accepted=7, then=int(ARCHIVED[13]))
    assert request.round(accepted=0, then=9) == (14, 15)
    assert request.tally.resumes == 1


def test_near_its_end_a_source_is_looked_up_again() -> None:
    request = Request()
    for _ in range(11):
        draft = request.router.propose("r", request.ledger, WIDTH, request.tally)
        assert draft is not None
        end = draft.position + len(draft.token_ids)
        request.ledger.append([*draft.token_ids, int(ARCHIVED[end])])
    resumed = request.tally.resumes
    assert request.round(accepted=0, then=9) == (182, 15)
    assert request.tally.resumes == resumed + 1
    request = Request()
    request.ledger.append(ARCHIVED[6:190])
    assert request.round(accepted=0, then=9) == (190, 8)


def test_the_requests_own_copies_have_no_cursor() -> None:
    request = Request("derived")
    request.round(accepted=15, then=int(ARCHIVED[21]))
    assert request.round(accepted=0, then=9) == (22, 15)
    assert request.tally.resumes == 0


def test_a_dropped_archive_is_not_resumed() -> None:
    request = Request()
    request.round(accepted=15, then=int(ARCHIVED[21]))
    request.router.drop_sources("r", "session")
    assert request.round(accepted=0, then=9) is None
