"""Draft sessions at the gateway: what goes to the engine, what comes back in each answer."""

import asyncio
from typing import Any

import pytest
import zmq
import zmq.asyncio

from shared import sockets
from shared.endpoints import in_directory
from shared.messages import (
    ArchiveStats,
    ArchiveToGateway,
    Deleted,
    DeleteSessions,
    GatewayToArchive,
    ListSessions,
    SessionFacts,
    Sessions,
    SpanKind,
)
from shared.session_names import public_id
from shared.wire import Codec
from tests.gateway.conftest import MESSAGES, Serve, Served
from tests.scripted_engine import Script, Turn

ON = {"ngram_archive_mib": 8}
NATIVE = {**ON, "ngram_native_sessions": True}
NAMED = {"X-NInfer-Draft-Session": "s"}
TEXT = "Read the file, please, and say what it does."
HEADER = "X-NInfer-Draft-Generation"
FIELDS = {
    "enabled",
    "bound",
    "reason",
    "published",
    "generation",
    "sources",
    "session_bytes",
    "total_bytes",
    "sampling_seed",
}


def stats(**changes: Any) -> ArchiveStats:
    fields: dict[str, Any] = {
        "bound": True,
        "reason": None,
        "published": True,
        "generation": 5,
        "sources": 3,
        "session_bytes": 700,
        "total_bytes": 900,
        **changes,
    }
    return ArchiveStats(**fields)


def answering(archive: ArchiveStats | None) -> Script:
    async def script(turn: Turn) -> None:
        turn.archive = archive
        await turn.tokens([65, 66])
        await turn.finish()

    return script


async def ask(
    served: Served, headers: dict[str, str] | None = None, **fields: Any
) -> tuple[dict[str, str], dict[str, Any]]:
    body = {"model": "tiny", "messages": MESSAGES} | fields
    url = f"{served.url}/v1/chat/completions"
    async with served.http.post(url, json=body, headers=NAMED | (headers or {})) as answer:
        assert answer.status == 200
        return dict(answer.headers), await answer.json()


async def test_the_engine_gets_the_name_the_wishes_and_the_parts(serve: Serve) -> None:
    async with serve(answering(stats()), **ON) as served:
        fork = {"X-NInfer-Draft-Parent": "p", HEADER: "4"}
        await ask(served, fork, messages=[{"role": "user", "content": TEXT}])
        await ask(served, {"X-NInfer-Draft-Reset": "1"})
    first, second = served.engine.generates
    assert first.session is not None
    assert first.session.key == b"explicit:s"
    assert first.session.fork is not None
    assert (first.session.fork.parent, first.session.fork.generation) == (b"explicit:p", 4)
    start, stop, kind = first.session.parts.tolist()[-3:]
    text = served.tokenizer.decode(first.prompt_ids[start:stop])
    assert text.strip() == TEXT
    assert kind == SpanKind.TEXT
    assert second.session is not None
    assert second.session.reset


async def test_a_whole_answer_has_the_generation_in_a_header_and_in_the_body(serve: Serve) -> None:
    async with serve(answering(stats()), **ON) as served:
        headers, body = await ask(served)
    assert headers[HEADER] == "5"
    expected = {"bound": True, "published": True, "reason": None, "generation": 5}
    assert body["ninfer"]["draft_session"] == expected


async def test_a_stream_has_it_in_a_comment_before_the_finish_chunk(serve: Serve) -> None:
    async with serve(answering(stats()), **ON) as served:
        body = {"messages": MESSAGES, "stream": True, "stream_options": {"include_usage": True}}
        url = f"{served.url}/v1/chat/completions"
        async with served.http.post(url, json=body, headers=NAMED) as answer:
            assert HEADER not in answer.headers
            blocks = (await answer.read()).decode().split("\n\n")
    place = blocks.index(": ninfer-draft-generation: 5")
    assert '"finish_reason":"stop"' in blocks[place + 1]
    assert not any('"finish_reason":"stop"' in block for block in blocks[:place])
    assert "".join(blocks).count("ninfer-draft-generation") == 1


@pytest.mark.parametrize(
    ("path", "body", "following"),
    [
        ("completions", {"prompt": TEXT}, ['"finish_reason":"stop"', "[DONE]"]),
        (
            "messages",
            {"messages": MESSAGES, "max_tokens": 9},
            ["content_block_stop", "message_delta", "message_stop"],
        ),
        ("responses", {"input": TEXT}, ["response.completed"]),
    ],
)
async def test_each_protocol_has_it_before_its_terminal_events(
    serve: Serve, path: str, body: dict[str, Any], following: list[str]
) -> None:
    async with serve(answering(stats()), **ON) as served:
        url = f"{served.url}/v1/{path}"
        asked = {"model": "tiny", **body}
        async with served.http.post(url, json=asked | {"stream": True}, headers=NAMED) as answer:
            blocks = (await answer.read()).decode().removesuffix("\n\n").split("\n\n")
        async with served.http.post(url, json=asked, headers=NAMED) as answer:
            assert answer.headers[HEADER] == "5"
            assert (await answer.json())["ninfer"]["draft_session"]["generation"] == 5
    place = blocks.index(": ninfer-draft-generation: 5")
    behind = blocks[place + 1 :]
    assert len(behind) == len(following)
    assert all(word in block for word, block in zip(following, behind, strict=True))


@pytest.mark.parametrize(
    "unpublished",
    [
        stats(bound=False, published=False, generation=0, reason="busy"),
        stats(published=False, generation=0, reason="publish_late"),
    ],
)
async def test_without_a_publication_no_generation_is_reported(
    serve: Serve, unpublished: ArchiveStats
) -> None:
    async with serve(answering(unpublished), **ON) as served:
        headers, body = await ask(served)
        line = await served.wait_for_log("request_done")
    assert HEADER not in headers
    assert body["ninfer"]["draft_session"] == {
        "bound": unpublished.bound,
        "published": False,
        "reason": unpublished.reason,
    }
    assert line["ngram_archive"]["reason"] == unpublished.reason


async def test_the_log_has_every_field_and_the_seed_that_was_used(serve: Serve) -> None:
    async with serve(answering(stats()), **ON) as served:
        await ask(served, seed=7)
        line = await served.wait_for_log("request_done")
    archive = line["ngram_archive"]
    assert set(archive) == FIELDS
    assert archive["enabled"]
    assert (archive["generation"], archive["session_bytes"], archive["total_bytes"]) == (
        5,
        700,
        900,
    )
    assert archive["sampling_seed"] == served.engine.generates[0].sampling.seed != 7
    assert line["request"]["sampling"]["seed"] == 7
    assert line["request"]["draft_session"] == public_id(b"explicit:s")


async def test_the_seed_differs_on_every_run_that_names_a_session(serve: Serve) -> None:
    """Even if it cannot be bound; and only then."""
    refused = {"X-NInfer-Draft-Reset": "yes"}
    async with serve(answering(None), **ON) as served:
        for headers in ({}, {}, refused, {"X-NInfer-Draft-Session": ""}):
            await ask(served, headers, seed=7)
    seeds = [generate.sampling.seed for generate in served.engine.generates]
    assert len(set(seeds)) == 4
    assert seeds[3] == 7
    assert [generate.session is None for generate in served.engine.generates] == [
        False,
        False,
        True,
        True,
    ]


async def test_a_name_that_cannot_be_bound_is_never_an_error_and_the_log_says_why(
    serve: Serve,
) -> None:
    async with serve(answering(None), **ON) as served:
        headers, body = await ask(served, {"X-NInfer-Draft-Reset": "yes"})
        line = await served.wait_for_log("request_done")
    assert HEADER not in headers
    assert body["ninfer"]["draft_session"]["reason"] == "malformed_reset"
    assert set(line["ngram_archive"]) == FIELDS
    assert line["ngram_archive"]["reason"] == "malformed_reset"
    assert line["ngram_archive"]["sampling_seed"] is not None


async def test_with_the_archive_off_nothing_changes(serve: Serve) -> None:
    async with serve(answering(None)) as served:
        headers, body = await ask(served, seed=7)
        line = await served.wait_for_log("request_done")
        async with served.http.get(f"{served.url}/v1/ninfer/sessions") as answer:
            assert answer.status == 404
            assert "--ngram-archive-mib" in (await answer.json())["error"]["message"]
    generate = served.engine.generates[0]
    assert (generate.session, generate.sampling.seed) == (None, 7)
    assert HEADER not in headers
    assert body["ninfer"]["draft_session"]["reason"] == "archive_off"
    assert set(line["ngram_archive"]) == FIELDS
    assert not line["ngram_archive"]["enabled"]


@pytest.mark.parametrize(
    ("headers", "fields", "key"),
    [
        ({"x-session-affinity": "k"}, {}, b"kilo:k"),
        ({}, {"client_metadata": {"thread_id": "t"}}, b"codex:t"),
        ({}, {"metadata": {"user_id": '{"session_id": "c"}'}}, b"claude:c"),
    ],
)
async def test_native_names_reach_the_engine_with_the_option_alone(
    serve: Serve, headers: dict[str, str], fields: dict[str, Any], key: bytes
) -> None:
    for options, expected in ((NATIVE, key), (ON, None)):
        async with serve(answering(None), **options) as served:
            body = {"model": "tiny", "messages": MESSAGES} | fields
            url = f"{served.url}/v1/chat/completions"
            async with served.http.post(url, json=body, headers=headers) as answer:
                assert answer.status == 200
        session = served.engine.generates[0].session
        assert (session and session.key) == expected


class ScriptedArchive:
    """The archive's end of the session list."""

    def __init__(self, served: Served) -> None:
        self._context = zmq.asyncio.Context()
        folder = served.log_path.parent / "sockets"
        self._socket = sockets.bind(self._context, zmq.ROUTER, in_directory(folder).sessions)
        self.asked: list[Any] = []

    async def answer(self, *answers: ArchiveToGateway | bytes) -> None:
        """To one question."""
        peer, *frames = await self._socket.recv_multipart()
        self.asked.append(Codec(GatewayToArchive).decode(frames))
        for answer in answers:
            raw = [answer] if isinstance(answer, bytes) else Codec(ArchiveToGateway).encode(answer)
            await self._socket.send_multipart([peer, *raw])

    def close(self) -> None:
        self._context.destroy(linger=0)


async def call(served: Served, method: str, path: str = "") -> tuple[int, dict[str, Any]]:
    async with served.http.request(method, f"{served.url}/v1/ninfer/sessions{path}") as answer:
        return answer.status, await answer.json()


async def test_sessions_are_listed_and_deleted(serve: Serve) -> None:
    facts = [
        SessionFacts(
            session_id=name,
            generation=number,
            sources=2,
            session_bytes=300,
            bound=False,
            last_used_unix_s=10.0 + number,
        )
        for number, name in enumerate(["old", "new"], start=1)
    ]
    async with serve(answering(None), **ON) as served:
        archive = ScriptedArchive(served)
        try:
            async with asyncio.timeout(5):
                while (await health(served))["services"]["archive"] != "ok":
                    await asyncio.sleep(0.01)
            stale = Deleted(ticket=10_000, sessions=9)
            listing = Sessions(
                ticket=1,
                sessions=tuple(facts),
                total_bytes=600,
                capacity_bytes=1000,
                evicted_spans=4,
            )
            serving = asyncio.create_task(archive.answer(b"garbage", stale, listing))
            status, body = await call(served, "GET")
            await serving
            assert status == 200
            assert [row["id"] for row in body["data"]] == ["new", "old"]
            assert body["data"][0] == {
                "id": "new",
                "object": "ninfer.session",
                "generation": 2,
                "sources": 2,
                "bytes": 300,
                "bound": False,
                "last_used": 12.0,
            }
            assert (body["total_bytes"], body["capacity_bytes"], body["evicted_spans"]) == (
                600,
                1000,
                4,
            )
            for path, sessions, status, name in [
                ("/new", 1, 200, "new"),
                ("/new/", 0, 404, "new"),
                ("", 5, 200, None),
            ]:
                ticket = len(archive.asked) + 1
                deleted = Deleted(ticket=ticket, sessions=sessions)
                serving = asyncio.create_task(archive.answer(deleted))
                assert (await call(served, "DELETE", path))[0] == status
                await serving
                assert archive.asked[-1] == DeleteSessions(ticket=ticket, session_id=name)
            assert archive.asked[0] == ListSessions(ticket=1)
        finally:
            archive.close()


async def health(served: Served) -> dict[str, Any]:
    async with served.http.get(f"{served.url}/health") as answer:
        found: dict[str, Any] = await answer.json()
        return found


async def test_an_absent_archive_is_a_503_and_shows_in_health(serve: Serve) -> None:
    async with serve(answering(None), **ON) as served:
        status, body = await call(served, "GET")
        assert (status, body["error"]["code"]) == (503, "archive_absent")
        found = await health(served)
    assert found["services"]["archive"] == "unavailable"
    assert found["status"] == "ok"


@pytest.mark.parametrize("name", ["s", "a b"])
async def test_a_name_is_not_silently_ignored_where_nothing_is_retained(
    serve: Serve, name: str
) -> None:
    async with serve(answering(None)) as served:
        _, body = await ask(served, {"X-NInfer-Draft-Session": name})
        line = await served.wait_for_log("request_done")
        assert served.engine.generates[0].session is None
    assert body["ninfer"]["draft_session"] == {
        "bound": False,
        "published": False,
        "reason": "archive_off",
    }
    assert line["ngram_archive"]["enabled"] is False
    assert line["ngram_archive"]["reason"] == "archive_off"
