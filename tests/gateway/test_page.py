"""The page at `/`: its files, what the live stream tells, and the texts of recent requests."""

import asyncio
import contextlib
import json
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import numpy as np
import pytest

from services.gateway.page.files import FILES
from services.gateway.page.live import MOST_READERS
from services.gateway.page.recent import RecentRequests
from shared.messages import (
    BuildIndex,
    DraftRecord,
    DraftSpan,
    Finished,
    Generate,
    OutputTokens,
    Sampling,
)
from shared.tokenizer import Tokenizer
from tests.gateway.conftest import Serve, Served
from tests.scripted_engine import Turn, make_stats, say, say_text

FILE = "def area(w, h):\n    return w * h\n"
HOSTILE = "</script><b>\u202e\x1b[31m\u05d0 \U0001f600 & \x00"


def span(start: int, stop: int, kind: Any, position: int | None, **fields: Any) -> DraftSpan:
    """A round whose drafts were all accepted."""
    drafted = stop - start - 1
    values = {"neural": 0, "drafted": drafted, "accepted": drafted, "declined": None} | fields
    return DraftSpan(start=start, stop=stop, kind=kind, position=position, match_length=4, **values)


async def get(served: Served, path: str, **headers: str) -> tuple[int, Any]:
    async with served.http.get(f"{served.url}/v1{path}", headers=headers) as answer:
        return answer.status, await answer.json()


async def text_of(served: Served, request_id: str) -> dict[str, Any]:
    status, body = await get(served, f"/ninfer/requests/{request_id}/text")
    assert status == 200, body
    found: dict[str, Any] = body
    return found


@contextlib.asynccontextmanager
async def live(served: Served, query: str = "") -> AsyncIterator[AsyncIterator[dict[str, Any]]]:
    async with served.http.get(f"{served.url}/v1/ninfer/live{query}") as answer:
        assert answer.status == 200, await answer.text()
        assert answer.content_type == "text/event-stream"

        async def events() -> AsyncIterator[dict[str, Any]]:
            async for line in answer.content:
                if line.startswith(b"data: "):
                    yield json.loads(line.removeprefix(b"data: "))

        yield events()


# -- files -----------------------------------------------------------------------------------


async def test_the_page_is_small_and_takes_nothing_from_elsewhere(serve: Serve) -> None:
    total = 0
    async with serve(say([]), api_key="s3cret") as served:
        for path, (_, content_type) in FILES.items():
            async with served.http.get(f"{served.url}{path}") as answer:
                assert answer.status == 200  # without a key: it holds nobody's text
                assert answer.content_type == content_type
                policy = answer.headers["Content-Security-Policy"]
                assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self'")
                assert "unsafe" not in policy
                text = await answer.text()
            total += len(text.encode())
            # the only addresses in it are its own, and a name of a vocabulary
            found = re.findall(r"https?://[^\"')\s]+", text)
            assert set(found) <= {"http://www.w3.org/2000/svg"}
            assert "innerHTML" not in text
            assert not re.search(r"<script(?![^>]*\bsrc=)|\son\w+=|\sstyle=", text)
    assert total < 100_000


def test_every_file_of_the_page_is_served() -> None:
    folder = Path(__file__).parents[2] / "services/gateway/page/assets"
    assert {path.name for path in folder.iterdir()} == {name for name, _ in FILES.values()}


async def test_a_page_that_has_not_changed_is_not_sent_again(serve: Serve) -> None:
    async with serve(say([])) as served:
        async with served.http.get(f"{served.url}/") as answer:
            tag = answer.headers["ETag"]
        async with served.http.get(f"{served.url}/", headers={"If-None-Match": tag}) as answer:
            assert answer.status == 304


async def test_everything_with_text_needs_the_key(serve: Serve) -> None:
    async with serve(say([[300]]), api_key="s3cret") as served:
        for path in ("/ninfer/live", "/ninfer/requests/any/text"):
            assert (await get(served, path))[0] == 401
        key = {"Authorization": "Bearer s3cret"}
        assert (await get(served, "/ninfer/requests/any/text", **key))[0] == 404


async def test_without_page_requests_there_is_no_page_and_no_text(serve: Serve) -> None:
    async with serve(say([[300]]), page_requests=0, draft_records=0) as served:
        _, body = await served.chat()
        async with served.http.get(f"{served.url}/") as answer:
            assert answer.status == 404
            assert "--page-requests" in (await answer.json())["error"]["message"]
        status, _ = await get(served, f"/ninfer/requests/{body['id']}/text")
        assert not served.engine.generates[0].record_drafts
    assert status == 404


# -- texts -----------------------------------------------------------------------------------


async def test_each_token_of_an_output_has_its_source_beside_it(
    serve: Serve, tokenizer: Tokenizer
) -> None:
    ids = tokenizer.encode_text(FILE).tolist()
    cut = len(ids)

    async def script(turn: Turn) -> None:
        prompt = turn.generate.prompt_ids.tolist()
        at = next(i for i in range(len(prompt)) if prompt[i : i + cut] == ids)
        turn.drafts = DraftRecord(
            spans=(
                span(1, 1, None, None, declined="no_match", drafted=0, accepted=0),
                span(1, cut + 1, "prompt", at + 1, accepted=cut - 1, drafted=cut + 3),
                span(cut + 1, cut + 4, "output", 1, drafted=2, accepted=2),
            ),
            dropped=0,
        )
        await turn.tokens(ids[:1])
        await turn.tokens([*ids[1:], 72], copied=cut - 1)
        await turn.tokens([*ids[1:3], 73], copied=2)
        await turn.finish()

    async with serve(script) as served:
        _, body = await served.chat(messages=[{"role": "user", "content": f"Repeat:\n{FILE}"}])
        shown = await text_of(served, body["id"])
    segments, sources = shown["segments"], shown["sources"]
    assert "".join(s["text"] for s in segments) == body["choices"][0]["message"]["content"]
    assert [s["kind"] for s in segments] == ["plain", "prompt", "plain", "output", "plain"]
    assert sum(s["tokens"] for s in segments) == cut + 4
    copied = segments[1]
    assert copied["round"] == {
        "kind": "prompt",
        "position": copied["round"]["position"],
        "match_length": 4,
        "drafted": cut + 3,
        "accepted": cut - 1,
        "declined": None,
    }
    for segment in segments:
        if "source" in segment:
            text = sources[segment["source"]]["text"]
            assert text[segment["from"] : segment["to"]] == segment["text"]
    assert [source["kind"] for source in sources] == ["prompt", "output"]
    assert f"Repeat:\n{FILE}" in sources[0]["text"]


async def test_a_place_that_does_not_hold_what_came_out_is_not_shown(
    serve: Serve, tokenizer: Tokenizer
) -> None:
    ids = tokenizer.encode_text("abcdef").tolist()

    async def script(turn: Turn) -> None:
        spans = [
            span(0, 3, "prompt", 0),
            span(3, 5, "session", 7),
            span(5, 6, "derived", 9_999, drafted=1, accepted=1),
        ]
        turn.drafts = DraftRecord(spans=tuple(spans), dropped=0)
        await turn.tokens(ids, copied=5)
        await turn.finish()

    async with serve(script) as served:
        _, body = await served.chat()
        shown = await text_of(served, body["id"])
    kinds = [s["kind"] for s in shown["segments"]]
    assert kinds == ["prompt", "plain", "session", "plain", "derived"]
    assert all("source" not in segment for segment in shown["segments"])
    assert len(shown["sources"]) == 1


async def test_bridges_show_the_neural_part_apart(serve: Serve, tokenizer: Tokenizer) -> None:
    ids = tokenizer.encode_text("abcdefgh").tolist()

    async def script(turn: Turn) -> None:
        spans = (span(0, 6, "session", 3, neural=2), span(6, 8, "lookup", None, neural=1))
        turn.drafts = DraftRecord(spans=spans, dropped=0)
        await turn.tokens(ids, copied=6)
        await turn.finish()

    async with serve(script) as served:
        _, body = await served.chat()
        shown = await text_of(served, body["id"])
    found = [(s["kind"], s["tokens"]) for s in shown["segments"]]
    assert found == [("neural", 2), ("session", 3), ("plain", 1), ("lookup", 1), ("plain", 1)]


async def test_places_are_counted_as_javascript_counts(serve: Serve, tokenizer: Tokenizer) -> None:
    text = "\U0001f600 wide \u05d0bc"
    ids = tokenizer.encode_text(text).tolist()
    length = len(tokenizer.encode_text("\U0001f600 wide "))

    async def script(turn: Turn) -> None:
        turn.drafts = DraftRecord(
            spans=(span(len(ids), 2 * len(ids) - length, "output", length, accepted=4, drafted=4),),
            dropped=0,
        )
        await turn.tokens(ids)
        await turn.tokens(ids[length:], copied=4)
        await turn.finish()

    async with serve(script) as served:
        _, body = await served.chat()
        shown = await text_of(served, body["id"])
    copied = next(s for s in shown["segments"] if s["kind"] == "output")
    units = shown["sources"][copied["source"]]["text"].encode("utf-16-le")
    assert copied["from"] == len("\U0001f600 wide ".encode("utf-16-le")) // 2
    assert units[2 * copied["from"] : 2 * copied["to"]].decode("utf-16-le") == copied["text"]


async def test_hostile_text_comes_whole_and_as_json(serve: Serve, tokenizer: Tokenizer) -> None:
    async with serve(say_text(tokenizer, HOSTILE)) as served:
        _, body = await served.chat(messages=[{"role": "user", "content": HOSTILE}])
        shown = await text_of(served, body["id"])
    assert HOSTILE in shown["sources"][0]["text"]
    assert "".join(s["text"] for s in shown["segments"]).startswith(HOSTILE)


async def test_a_failed_request_says_by_what(serve: Serve) -> None:
    async def script(turn: Turn) -> None:
        await turn.tokens([70, 71])
        await turn.fail("server_error", "broken")

    async with serve(script) as served:
        await served.chat()
        async with live(served) as events:
            told = (await anext(events))["requests"]
    assert [(r["state"], r["reason"], r["output_tokens"]) for r in told] == [
        ("failed", "server_error", 2)
    ]


# -- the live stream -------------------------------------------------------------------------


async def test_the_stream_tells_load_processes_and_requests(serve: Serve) -> None:
    async with serve(say([[70, 71, 72]])) as served:
        await served.chat(max_tokens=9)
        async with live(served) as events:
            event = await anext(events)
    assert event["services"] == {"gateway": True, "engine": True, "indexer": True}
    assert (event["model"], event["rows"], event["copies"]) == ("tiny", 2, 15)
    assert (event["tokens"], event["rounds"], event["oldest"]) == (4, 2, 1)
    (request,) = event["requests"]
    assert (request["state"], request["reason"]) == ("done", "stop")
    assert (request["output_tokens"], request["passes"]) == (4, 1)


async def test_a_thousand_rounds_are_a_few_events_and_all_of_the_text(
    serve: Serve, tokenizer: Tokenizer
) -> None:
    text = "The quick brown fox jumps over the lazy dog. " * 60
    started, more = asyncio.Event(), asyncio.Event()
    ids = tokenizer.encode_text(text).tolist()
    rounds = [ids[i : i + 2] for i in range(0, len(ids), 2)]

    async def script(turn: Turn) -> None:
        await turn.tokens(rounds[0])
        started.set()
        await more.wait()
        for round_ in rounds[1:]:
            await turn.tokens(round_, copied=1)
        await turn.finish("length")

    async with serve(script, engine={"max_context": 9_000}) as served:
        asking = asyncio.create_task(served.chat(max_tokens=8_000))
        await started.wait()
        request_id = served.engine.generates[0].request_id
        await served.engine.wait_for(
            lambda: served.log_lines("request_start"),
        )
        shown, count, states = "", 0, []
        async with live(served, f"?request={request_id}&tokens=0") as events:
            async for event in events:
                count += 1
                more.set()
                output = event.get("output", {"segments": []})
                shown += "".join(segment["text"] for segment in output["segments"])
                states += [request["state"] for request in event["requests"]]
                if "done" in states:
                    break
        await asking
    assert shown == text
    assert len(rounds) > 1000
    assert count < 60


async def test_a_reader_that_reads_nothing_holds_up_no_request(serve: Serve) -> None:
    async with serve(say([[70]] * 50)) as served, live(served) as _:
        for _ in range(5):
            status, _ = await served.chat()
            assert status == 200


async def test_only_so_many_pages_are_served_at_once(serve: Serve) -> None:
    async with serve(say([])) as served, contextlib.AsyncExitStack() as stack:
        for _ in range(MOST_READERS):
            await anext(await stack.enter_async_context(live(served)))
        assert (await get(served, "/ninfer/live"))[0] == 429


async def test_a_page_is_let_go_at_shutdown(serve: Serve) -> None:
    async with aiohttp.ClientSession() as session:
        async with serve(say([])) as served:
            answer = await session.get(f"{served.url}/v1/ninfer/live")
            await answer.content.readuntil(b"\n\n")
        # a whole end, no cut connection
        async with asyncio.timeout(5):
            await answer.read()


@pytest.mark.parametrize("query", ["?tokens=x", "?tokens=-1", "?tokens=1e3"])
async def test_a_bad_number_of_tokens_is_refused(serve: Serve, query: str) -> None:
    async with serve(say([])) as served:
        status, body = await get(served, f"/ninfer/live{query}")
    assert (status, body["error"]["param"]) == (400, "tokens")


# -- bounds ----------------------------------------------------------------------------------


def begun(recent: RecentRequests, name: str, *, prompt: int = 10, tool: str = "") -> Any:
    ids = np.zeros(prompt, np.int32)
    generate = Generate(
        request_id=name,
        prompt_ids=ids,
        max_output_tokens=9,
        stop_ids=(),
        sampling=Sampling(temperature=0.0, top_p=1.0, top_k=0, min_p=0.0, seed=0),
        expect_index=False,
        queue_deadline_s=1.0,
    )
    index = BuildIndex(request_id=name, prompt_ids=ids, tool_texts=(tool,), predicted=None)
    return recent.begin({}, generate, index)


def test_the_oldest_makes_room_by_number() -> None:
    recent = RecentRequests(2)
    for name in "abc":
        begun(recent, name)
    assert [recent.get(name) is not None for name in "abc"] == [False, True, True]
    assert recent.oldest == 2


def test_the_oldest_makes_room_by_bytes_while_tokens_come() -> None:
    recent = RecentRequests(10, max_bytes=5_000)
    begun(recent, "a", tool="x" * 2_000)
    newest = begun(recent, "b", prompt=100)
    assert recent.get("a") is not None
    for _ in range(20):
        ids = np.zeros(10, np.int32)
        recent.take(newest, OutputTokens(request_id="b", token_ids=ids, copied=0), 1.0)
    assert recent.get("a") is None
    assert recent.get("b") is newest


def test_one_that_is_larger_than_all_room_is_not_kept_and_does_not_disturb() -> None:
    recent = RecentRequests(10, max_bytes=1_000)
    large = begun(recent, "a", prompt=10_000)
    assert recent.get("a") is None
    ids = np.zeros(10, np.int32)
    recent.take(large, OutputTokens(request_id="a", token_ids=ids, copied=0), 1.0)
    finished = Finished(request_id="a", reason="stop", stats=make_stats(10, 10))
    recent.finish(large, "stop", finished)
    begun(recent, "b")
    assert recent.get("b") is not None


def test_what_a_stop_string_cut_off_is_not_shown() -> None:
    recent = RecentRequests(1)
    request = begun(recent, "a")
    ids = np.arange(10, dtype=np.int32)
    recent.take(request, OutputTokens(request_id="a", token_ids=ids, copied=0), 1.0)
    finished = Finished(request_id="a", reason="stop", stats=make_stats(10, 4))
    recent.finish(request, "stop_string", finished)
    assert list(request.output_ids) == [0, 1, 2, 3]


def test_only_what_has_changed_is_told() -> None:
    recent = RecentRequests(3)
    first, second = begun(recent, "a"), begun(recent, "b")
    seen = recent.version
    assert recent.since(seen) == []
    recent.take(first, OutputTokens(request_id="a", token_ids=np.zeros(1, np.int32), copied=0), 1.0)
    assert recent.since(seen) == [first]
    assert recent.since(0) == [first, second]
