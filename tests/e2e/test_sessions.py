"""Draft sessions through every process, and what happens when the archive misbehaves."""

import json
import os
import signal
import socket
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx2 as httpx
import numpy as np
import openai
import pytest
import zmq

from shared import sockets
from shared.endpoints import in_directory
from tests.e2e.conftest import Server, wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(180)]
Launch = Callable[..., Server]
HEADER = "X-NInfer-Draft-Generation"
FLAGS = ("--ngram-draft-tokens=15", "--ngram-min-match=4", "--ngram-archive-mib=4")
# a random model soon repeats itself, so a short answer is asked for again and again
ASK = {"messages": [{"role": "user", "content": "Tell me all of it, please."}], "max_tokens": 60}


@pytest.fixture
def archived(tiny_model: Path, launch: Launch) -> Iterator[Server]:
    server = launch(tiny_model, *FLAGS)
    wait_until_bound(server)
    yield server
    assert server.stop() == 0


def ask(server: Server, name: str = "s", **headers: str) -> httpx.Response:
    named = {"X-NInfer-Draft-Session": name}
    named |= {f"X-NInfer-Draft-{what.title()}": value for what, value in headers.items()}
    answer = server.post(ASK, headers=named)
    assert answer.status_code == 200
    return answer


def wait_until_bound(server: Server, name: str = "warm-up") -> None:
    """The engine greets the archive while it starts; until then requests run without it."""
    wait_for(lambda: HEADER in ask(server, name, reset="1").headers)


def last_line(server: Server) -> dict[str, Any]:
    lines = [json.loads(line) for line in server.log.read_text().splitlines()]
    found: dict[str, Any] = [line for line in lines if line["event"] == "request_done"][-1]
    return found


def text_of(answer: httpx.Response) -> str:
    text: str = answer.json()["choices"][0]["message"]["content"]
    return text


def listed(server: Server) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = httpx.get(f"{server.url}/ninfer/sessions").json()["data"]
    return rows


def copied_from_session(line: dict[str, Any]) -> int:
    sources = line["speculative"]["sources"]
    return sum(s["accepted_tokens"] for s in sources if s["kind"] == "session")


def test_a_conversation_over_http(archived: Server) -> None:
    plain = text_of(archived.post(ASK))
    first = ask(archived)
    second = ask(archived)
    line = last_line(archived)
    assert int(second.headers[HEADER]) == int(first.headers[HEADER]) + 1
    assert text_of(first) == text_of(second) == plain
    assert copied_from_session(line) > 20
    assert line["ngram_archive"]["session_bytes"] > 0

    fork = ask(archived, "child", parent="s", generation=second.headers[HEADER])
    assert copied_from_session(last_line(archived)) > 20
    assert HEADER in fork.headers
    stale = ask(archived, "late", parent="s", generation=first.headers[HEADER])
    assert HEADER not in stale.headers
    assert stale.json()["ninfer"]["draft_session"]["reason"] == "stale_generation"

    rows = listed(archived)
    assert len(rows) == 3
    row = next(r for r in rows if r["generation"] == int(second.headers[HEADER]))
    assert httpx.delete(f"{archived.url}/ninfer/sessions/{row['id']}").json() == {"deleted": 1}
    assert httpx.delete(f"{archived.url}/ninfer/sessions/{row['id']}").status_code == 404
    ask(archived)
    assert copied_from_session(last_line(archived)) == 0
    assert httpx.delete(f"{archived.url}/ninfer/sessions").json() == {"deleted": 3}
    assert listed(archived) == []


def test_a_stream_says_its_generation_before_its_end(archived: Server) -> None:
    client = openai.OpenAI(
        base_url=archived.url,
        api_key="unused",
        default_headers={"X-NInfer-Draft-Session": "stream"},
    )
    chunks = list(client.chat.completions.create(model="tiny", stream=True, **ASK))  # type: ignore[call-overload]
    assert chunks[-1].choices[0].finish_reason == "length"
    body = {**ASK, "stream": True}
    answer = archived.post(body, headers={"X-NInfer-Draft-Session": "stream"})
    blocks = answer.text.split("\n\n")
    generation = last_line(archived)["ngram_archive"]["generation"]
    assert blocks.index(f": ninfer-draft-generation: {generation}") == len(blocks) - 4
    assert '"finish_reason":"length"' in blocks[-3]


def test_killing_the_archive_loses_sessions_but_no_request_and_no_number(
    archived: Server,
) -> None:
    first = ask(archived)
    generation = int(first.headers[HEADER])
    archived.kill("archive")
    during = ask(archived)
    assert text_of(during) == text_of(first)
    line = last_line(archived)
    assert HEADER not in during.headers or line["ngram_archive"]["published"]
    wait_until_bound(archived)
    assert [row["generation"] > generation for row in listed(archived)] == [True]
    again = ask(archived)
    assert copied_from_session(last_line(archived)) == 0
    assert int(again.headers[HEADER]) > generation
    assert text_of(again) == text_of(first)


def test_a_stopped_archive_delays_one_answer_by_its_deadline_and_none_after(
    archived: Server,
) -> None:
    first = ask(archived)
    pid = archived.child("archive")
    os.kill(pid, signal.SIGSTOP)
    try:
        reasons = []
        for _ in range(8):
            answer = ask(archived)
            assert HEADER not in answer.headers
            assert text_of(answer) == text_of(first)
            reasons.append(last_line(archived)["ngram_archive"]["reason"])
            if reasons[-1] == "archive_absent":
                break
        assert reasons[-1] == "archive_absent"
        assert set(reasons[:-1]) == {"publish_late"}
        status = httpx.get(f"{archived.url}/ninfer/sessions").status_code
        assert status == 503
    finally:
        os.kill(pid, signal.SIGCONT)
    wait_until_bound(archived)


def test_killing_the_engine_clears_the_archive(archived: Server) -> None:
    ask(archived)
    assert len(listed(archived)) == 2
    archived.kill("engine")
    wait_for(lambda: not archived.healthy())
    wait_for(archived.healthy)
    wait_until_bound(archived)
    assert len(listed(archived)) == 1  # the one of the wait
    ask(archived)
    assert copied_from_session(last_line(archived)) == 0


def test_garbage_on_the_archives_sockets_hurts_nobody(tiny_model: Path, launch: Launch) -> None:
    with tempfile.TemporaryDirectory(prefix="ninfer-test-") as name:
        server = launch(tiny_model, *FLAGS, f"--sockets={name}")
        wait_until_bound(server)
        context: Any = zmq.Context()
        channels = in_directory(Path(name))
        rng = np.random.default_rng(5)
        ends = (channels.bind, channels.sessions)
        dealers = [sockets.connect(context, zmq.DEALER, e, queue_early=True) for e in ends]
        for mad in dealers:
            for size in rng.integers(0, 300, 200).tolist():
                mad.send_multipart([rng.bytes(size) for _ in range(size % 4 + 1)])
        raw = socket.socket(socket.AF_UNIX)
        raw.connect(channels.bind.removeprefix("ipc://"))
        raw.sendall(rng.bytes(5000))
        first, second = ask(server), ask(server)
        assert int(second.headers[HEADER]) > int(first.headers[HEADER])
        assert copied_from_session(last_line(server)) > 20
        assert len(listed(server)) == 2
        raw.close()
        for mad in dealers:
            mad.close()
        context.destroy(linger=0)
        assert server.stop() == 0


def test_a_full_archive_keeps_within_its_memory_and_answers_everything(
    tiny_model: Path, launch: Launch
) -> None:
    server = launch(tiny_model, *FLAGS, "--ngram-session-mib=1")
    wait_until_bound(server)
    rng = np.random.default_rng(6)
    for number in range(160):
        words = " ".join(f"w{n}" for n in rng.integers(0, 10_000, 150))
        body = {"messages": [{"role": "user", "content": words}], "max_tokens": 3}
        answer = server.post(body, headers={"X-NInfer-Draft-Session": f"s{number % 36}"})
        assert answer.status_code == 200
        assert HEADER in answer.headers
    found = httpx.get(f"{server.url}/ninfer/sessions").json()
    assert found["total_bytes"] <= found["capacity_bytes"] == 4 << 20
    assert found["evicted_spans"] > 0
    assert len(found["data"]) == 32
    assert server.stop() == 0
