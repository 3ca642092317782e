"""`GET /v1/ninfer/requests`: what the last requests drafted, and why."""

from typing import Any

import pytest

from shared.messages import DraftRecord, DraftSpan, SourceStats
from tests.gateway.conftest import Serve, Served
from tests.scripted_engine import Turn

SPAN = DraftSpan(
    start=1,
    stop=9,
    kind="derived",
    position=40,
    match_length=12,
    neural=0,
    drafted=15,
    accepted=7,
    declined=None,
)
SOURCE = SourceStats(kind="derived", rounds=4, drafted_tokens=60, accepted_tokens=30)


async def drafting(turn: Turn) -> None:
    turn.sources = (SOURCE,)
    turn.drafts = DraftRecord(spans=(SPAN,), dropped=0) if turn.generate.record_drafts else None
    await turn.tokens([300, 301])
    await turn.finish()


async def get(served: Served, path: str) -> tuple[int, dict[str, Any]]:
    async with served.http.get(f"{served.url}/v1{path}") as answer:
        return answer.status, await answer.json()


async def test_a_requests_record_is_found_under_its_id(serve: Serve) -> None:
    async with serve(drafting) as served:
        _, body = await served.chat()
        status, record = await get(served, f"/ninfer/requests/{body['id']}")
    assert status == 200
    assert (record["id"], record["object"]) == (body["id"], "ninfer.request")
    assert record["drafts"]["dropped"] == 0
    assert record["drafts"]["spans"] == [
        {
            "start": 1,
            "stop": 9,
            "kind": "derived",
            "position": 40,
            "match_length": 12,
            "neural": 0,
            "drafted": 15,
            "accepted": 7,
            "declined": None,
        }
    ]


async def test_figures_have_the_names_that_vllm_gives_them(serve: Serve) -> None:
    async with serve(drafting) as served:
        _, body = await served.chat()
        _, record = await get(served, f"/ninfer/requests/{body['id']}")
    figures = record["speculative"]
    assert figures == body["ninfer"]["speculative"]
    assert (figures["num_drafts"], figures["num_draft_tokens"]) == (4, 60)
    assert figures["num_accepted_tokens"] == 30
    assert figures["mean_acceptance_length"] == 1 + 30 / 4
    assert figures["draft_acceptance_rate"] == 0.5
    assert figures["sources"]["derived"]["accepted_tokens"] == 30


async def test_the_list_shows_the_newest_first_and_no_spans(serve: Serve) -> None:
    async with serve(drafting) as served:
        ids = [(await served.chat())[1]["id"] for _ in range(3)]
        _, listed = await get(served, "/ninfer/requests")
    assert [kept["id"] for kept in listed["data"]] == ids[::-1]
    assert all("drafts" not in kept for kept in listed["data"])


async def test_only_the_last_ones_are_kept(serve: Serve) -> None:
    async with serve(drafting, draft_records=2) as served:
        ids = [(await served.chat())[1]["id"] for _ in range(3)]
        gone, body = await get(served, f"/ninfer/requests/{ids[0]}")
        kept = [(await get(served, f"/ninfer/requests/{name}"))[0] for name in ids[1:]]
    assert (gone, kept) == (404, [200, 200])
    assert "last 2" in body["error"]["message"]


async def test_without_records_the_engine_is_not_asked_for_them(serve: Serve) -> None:
    async with serve(drafting, draft_records=0) as served:
        _, body = await served.chat()
        status, _ = await get(served, f"/ninfer/requests/{body['id']}")
        _, listed = await get(served, "/ninfer/requests")
    assert status == 404
    assert listed["data"] == []


@pytest.mark.parametrize("sources", [(), (SOURCE,)])
async def test_a_rate_of_nothing_is_null(serve: Serve, sources: tuple[SourceStats, ...]) -> None:
    async def script(turn: Turn) -> None:
        turn.sources = sources
        await turn.tokens([300])
        await turn.finish()

    async with serve(script) as served:
        _, body = await served.chat()
    rate = body["ninfer"]["speculative"]["draft_acceptance_rate"]
    assert rate == (0.5 if sources else None)


async def test_the_end_of_an_id_finds_its_record_unless_it_is_short(serve: Serve) -> None:
    async with serve(drafting) as served:
        _, body = await served.chat()
        status, record = await get(served, f"/ninfer/requests/{body['id'][-8:]}")
        missing, _ = await get(served, f"/ninfer/requests/{body['id'][-7:]}")
    assert (status, record["id"], missing) == (200, body["id"], 404)
