"""The request log: fields, one end for each start, no text, no key."""

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from services.gateway.outcome import Outcome
from services.gateway.request_log import RequestLog, redact
from shared.errors import ConfigError
from shared.messages import ArchiveStats, SourceStats
from shared.tokenizer import Tokenizer
from tests.gateway.conftest import MESSAGES, Serve
from tests.scripted_engine import Turn, hang, make_stats, say

SECRET = "xyzzy-plugh"
KEY = "s3cret-key"


async def test_a_start_line_describes_server_model_and_engine(serve: Serve) -> None:
    async with serve(say([]), api_key=KEY, temperature=0.25) as served:
        (line,) = served.log_lines("server_start")
    assert line["schema_version"] == 1
    assert line["timestamp_unix_ms"] > 1_600_000_000_000
    assert line["server"]["model_id"] == "tiny"
    assert line["server"]["has_api_key"] is True
    assert line["server"]["sampling_defaults"]["temperature"] == 0.25
    assert line["engine"]["model"]["max_context"] == 512
    assert line["engine"]["limits"]["ngram_draft_tokens"] == 15
    assert KEY not in served.log_path.read_text()


async def test_a_done_line_has_every_group(serve: Serve) -> None:
    source = SourceStats(kind="prompt", rounds=2, drafted_tokens=20, accepted_tokens=9)

    async def script(turn: Turn) -> None:
        turn.sources = (source,)
        await turn.tokens([70] * 12)
        await turn.finish("length")

    async with serve(script) as served:
        await served.chat(max_tokens=12, seed=7, stop=["a", "b"])
        start = await served.wait_for_log("request_start")
        done = await served.wait_for_log("request_done")
    request = done["request"]
    assert start["request"] == request
    assert request["request_id"] == served.engine.generates[0].request_id
    assert request["protocol"] == "openai_chat_completions"
    assert (request["model"], request["stream"]) == ("tiny", False)
    assert (request["message_count"], request["tool_count"], request["stop_count"]) == (1, 0, 2)
    assert request["requested_output_tokens"] == 12
    assert request["requested_output_tokens_source"] == "client"
    assert request["sampling"] == {
        "temperature": 0.0,
        "top_p": 1.0,
        "top_k": 0,
        "min_p": 0.0,
        "seed": 7,
        "presence_penalty": 0.0,
        "frequency_penalty": 0.0,
        "repetition_penalty": 1.0,
        "logit_bias": [],
    }
    assert done["result"] == {
        "finish_reason": "length",
        "prompt_tokens": 21,
        "completion_tokens": 12,
        "computed_prefill_tokens": 20,
        "prefix_cache_hit_tokens": 1,
        "prefix_cache_source": "none",
        "prefix_cache_end": "unknown",
        "decode_passes": 2,
        "reasoning_tokens": 0,
        "tool_calls": 0,
    }
    timings = done["timings_seconds"]
    assert set(timings) >= {"prepare", "queue", "prefill", "ttft", "decode", "total"}
    assert 0 < timings["prepare"] < timings["ttft"] <= timings["total"]
    speculative = done["speculative"]
    assert speculative["ngram_accepted_tokens"] == speculative["accepted_tokens"] == 9
    assert len(speculative["accepted_per_position"]) == speculative["draft_window"] == 15
    assert speculative["sources"] == [
        {"kind": "prompt", "rounds": 2, "drafted_tokens": 20, "accepted_tokens": 9}
    ]


async def test_a_refused_request_has_one_error_line(serve: Serve) -> None:
    async with serve(say([])) as served:
        await served.chat(model=SECRET, user=SECRET)
        await served.chat(temperature=-1)
    first, second = served.log_lines("request_error")
    assert (first["phase"], first["error"]["status"]) == ("prepare", 404)
    assert first["error"]["code"] == "model_not_found"
    assert second["error"]["param"] == "temperature"
    assert first["error"]["reason"] == "a model was asked for that is not 'tiny'"
    assert "`float` >= 0" in second["error"]["reason"]
    assert not served.log_lines("request_start")
    assert SECRET not in served.log_path.read_text()


QUOTING: list[dict[str, Any]] = [
    {"model": f"a'{SECRET}"},
    {"model": f'"{SECRET}'},
    {"messages": [{"role": f"'{SECRET}'", "content": ""}]},
    {"messages": [{"role": "user", "content": [{"type": SECRET}]}]},
    {"logit_bias": {SECRET: 1}},
    {"reasoning_effort": f"x'{SECRET}'x"},
    {"structured_outputs": {SECRET: 1}},
    {"structured_outputs": {"regex": f"({SECRET}"}},
    {"guided_grammar": SECRET},
    {"guided_json": {"type": SECRET}},
    {"guided_choice": [SECRET], "guided_regex": SECRET},
    {"response_format": {"type": SECRET}},
    {"tools": [{"type": SECRET}]},
    {"prediction": {"type": SECRET, "content": ""}},
    {"metadata": SECRET, "n": 17, "stop": [SECRET] * 20},
]


@pytest.mark.parametrize("fields", QUOTING)
async def test_a_reason_says_nothing_that_the_client_wrote(
    serve: Serve, fields: dict[str, Any]
) -> None:
    with capture_logs() as printed:
        async with serve(say([])) as served:
            status, _ = await served.chat(**fields)
    assert status in (400, 404)
    (line,) = served.log_lines("request_error")
    assert line["error"]["reason"]
    assert SECRET not in served.log_path.read_text()
    assert SECRET not in repr(printed)


async def test_the_terminal_says_why_a_request_was_refused(serve: Serve) -> None:
    with capture_logs() as printed:
        async with serve(say([])) as served:
            await served.chat(best_of=2)
    (line,) = [line for line in printed if line["event"] == "request_error"]
    assert (line["param"], line["reason"]) == (
        "best_of",
        "best_of is not supported by this server",
    )


async def test_the_terminal_tells_of_lookups_and_sessions(serve: Serve) -> None:
    async def script(turn: Turn) -> None:
        turn.sources = (SourceStats(kind="lookup", rounds=3, drafted_tokens=20, accepted_tokens=9),)
        await turn.tokens([65])
        await turn.finish()

    with capture_logs() as printed:
        async with serve(script) as served:
            url = f"{served.url}/v1/chat/completions"
            headers = {"X-NInfer-Draft-Session": "s"}
            body = {"messages": MESSAGES}
            async with served.http.post(url, json=body, headers=headers) as answer:
                assert answer.status == 200
            await served.chat()
    named, unnamed = [line for line in printed if line["event"] == "request_done"]
    assert named["lookups"] == "9/20 in 3 rounds"
    assert named["session"] == "archive_off"
    assert "session" not in unnamed


async def test_the_terminal_names_a_session_by_its_hash(serve: Serve) -> None:
    async def script(turn: Turn) -> None:
        turn.archive = ArchiveStats(
            bound=True,
            reason=None,
            published=True,
            generation=5,
            sources=1,
            session_bytes=1,
            total_bytes=1,
        )
        await turn.tokens([65])
        await turn.finish()

    with capture_logs() as printed:
        async with serve(script, ngram_archive_mib=8) as served:
            url = f"{served.url}/v1/chat/completions"
            headers = {"X-NInfer-Draft-Session": SECRET.replace(" ", "-")}
            async with served.http.post(
                url, json={"messages": MESSAGES}, headers=headers
            ) as answer:
                assert answer.status == 200
    (line,) = [line for line in printed if line["event"] == "request_done"]
    session_id, _, became = line["session"].partition(": ")
    assert became == "generation 5"
    assert session_id == served.log_lines("request_done")[0]["request"]["draft_session"]


async def test_a_call_that_the_guard_refuses_has_an_error_line(serve: Serve) -> None:
    async with serve(say([]), api_key=KEY) as served:
        key = {"Authorization": f"Bearer {KEY}"}
        for path, headers in (
            ("/v1/models", {}),
            ("/health", {"Host": "evil.example"}),
            ("/api/tags", key),
            ("/v1/chat/completions", key),
        ):
            async with served.http.get(served.url + path, headers=headers) as answer:
                assert answer.status >= 400
    lines = served.log_lines("request_error")
    assert [line["error"]["status"] for line in lines] == [401, 403, 404, 405]
    assert {line["phase"] for line in lines} == {"guard"}
    assert lines[2]["request"]["path"] == "/api/tags"
    assert KEY not in served.log_path.read_text()


async def test_every_start_has_one_end_and_no_text(serve: Serve, tokenizer: Tokenizer) -> None:
    async def script(turn: Turn) -> None:
        number = len(turn.engine.generates)
        await turn.tokens(tokenizer.encode_text(SECRET).tolist())
        if number == 1:
            await turn.finish("stop")
        elif number == 2:
            await turn.fail("server_error", SECRET)
        else:
            await asyncio.Event().wait()

    messages = [{"role": "user", "content": SECRET}]
    with capture_logs() as printed:
        async with serve(script) as served:
            await served.chat(messages=messages)
            await served.events(messages=messages)
            await served.chat(messages=messages, stop=SECRET)
            left = asyncio.create_task(served.chat(messages=messages))
            await served.engine.wait_for(lambda: len(served.engine.generates) == 4)
            left.cancel()
            await served.wait_for_log("request_done", 3)
    starts = [line["request"]["request_id"] for line in served.log_lines("request_start")]
    ends = [
        line["request"]["request_id"]
        for line in served.log_lines()
        if line["event"] in ("request_done", "request_error")
    ]
    assert len(starts) == 4
    assert sorted(starts) == sorted(ends)
    reasons = [line["result"]["finish_reason"] for line in served.log_lines("request_done")]
    assert reasons == ["stop", "stop_string", "cancelled"]
    assert SECRET not in served.log_path.read_text()
    assert SECRET not in repr(printed)


async def test_a_finished_request_prints_one_readable_line(serve: Serve) -> None:
    with capture_logs() as printed:
        async with serve(say([[70, 71]])) as served:
            await served.chat()
    (line,) = [line for line in printed if line["event"] == "request_done"]
    assert line["output"] == 3
    assert line["tok_s"] == 4.0
    assert line["copies"] == "0/0 in 0 rounds"
    assert line["reason"] == "stop"
    assert line["ttft_s"] >= 0


async def test_a_full_disk_does_not_fail_requests_and_is_said_once(serve: Serve) -> None:
    with capture_logs() as printed:
        async with serve(say([]), request_log_jsonl=Path("/dev/full")) as served:
            for _ in range(3):
                assert (await served.chat())[0] == 200
    assert [line["event"] for line in printed].count("request_log_failed") == 1


def test_lines_that_were_lost_are_counted_once_there_is_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = RequestLog(tmp_path / "log", {})
    write = os.write
    with capture_logs() as printed:
        monkeypatch.setattr(os, "write", lambda descriptor, data: write(descriptor, data[:3]))
        for _ in range(3):
            log.request_start({"request_id": "r"})
        monkeypatch.setattr(os, "write", write)
        log.request_start({"request_id": "s"})
        log.request_start({"request_id": "t"})
    assert [(line["event"], line.get("lost_lines")) for line in printed] == [
        ("request_log_failed", None),
        ("request_log_goes_on", 3),
    ]
    assert len((tmp_path / "log").read_text().splitlines()) == 2


async def test_what_a_request_narrowed_is_logged(serve: Serve) -> None:
    async with serve(say([])) as served:
        await served.chat(ninfer={"speculation": False})
        await served.chat(ninfer={"ngram_min_match": 8})
        await served.chat()
    logged = [line["request"]["speculation"] for line in served.log_lines("request_done")]
    assert logged == [
        {"ngram_draft_tokens": 0, "draft_tokens": 0},
        {"ngram_min_match": 8},
        None,
    ]


def test_a_log_that_cannot_be_opened_stops_the_start(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="--request-log-jsonl"):
        RequestLog(tmp_path, {})


def test_lines_are_flushed_one_by_one(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    log = RequestLog(path, {})
    request: dict[str, Any] = {"request_id": "r", "client": "line\nbreak \x1b[31m"}
    log.request_start(request)
    assert len(path.read_text().splitlines()) == 1
    outcome = Outcome(
        reason="cancelled",
        stats=make_stats(5, 0),
        completion_tokens=0,
        reasoning_tokens=0,
        tool_calls=0,
        timings={"ttft": None},
        archive={},
    )
    log.request_done(request, outcome)
    assert len(path.read_text().splitlines()) == 2
    log.close()


@pytest.mark.parametrize(
    "argv", [["--api-key", KEY, "--port", "1"], [f"--api-key={KEY}", "--port", "1"]]
)
def test_the_key_is_cut_from_the_logged_command_line(argv: list[str]) -> None:
    shown = redact(argv)
    assert KEY not in " ".join(shown)
    assert shown[-2:] == ["--port", "1"]


async def test_a_request_in_flight_has_its_start_line(serve: Serve) -> None:
    async with serve(hang) as served:
        task = asyncio.create_task(served.chat())
        line = await served.wait_for_log("request_start")
        assert line["request"]["prompt_tokens"] == 21
        task.cancel()
