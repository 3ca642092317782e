"""`ninfer-explain`: drafting replayed from a body and its answer, or read from a server."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from services.explain import explain
from shared.errors import ConfigError

FILE = "".join(f"value_{n} = compute({n * 37 % 101}, scale={n})\n" for n in range(30))
LISTING = "".join(f"{n}\t{line}\n" for n, line in enumerate(FILE.splitlines(), 1))
RECORD = {
    "id": "r",
    "drafts": {
        "spans": [
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
        ],
        "dropped": 2,
    },
}
MISSING = {"error": {"message": "no record of request 'other'; the last 64 that ended are kept"}}
KEY = "k3y"


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    body, output = tmp_path / "body.json", tmp_path / "answer.txt"
    messages = [
        {"role": "user", "content": "Write the file again."},
        {"role": "tool", "content": LISTING, "tool_call_id": "c"},
    ]
    body.write_text(json.dumps({"messages": messages, "max_tokens": 100}))
    output.write_text(f"Here:\n{FILE}")
    return body, output


def record_of(capsys: pytest.CaptureFixture[str], *argv: str) -> dict[str, Any]:
    explain([*argv, "--json"])
    record: dict[str, Any] = json.loads(capsys.readouterr().out)
    return record


def test_the_drafting_of_an_answer_is_replayed_without_a_model(
    tiny_model: Path, files: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    body, output = files
    record = record_of(capsys, f"--model={tiny_model}", f"--body={body}", f"--output={output}")
    spans = record["drafts"]["spans"]
    copied = sum(span["accepted"] for span in spans if span["kind"] == "derived")
    assert copied > 0.8 * record["output_tokens"]
    assert spans[0]["start"] == 1
    assert spans[-1]["stop"] >= record["output_tokens"] - 1  # the last has no room for drafts
    assert record["decode_passes"] < record["output_tokens"] / 4


def test_it_says_why_nothing_was_copied(
    tiny_model: Path, files: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    body, output = files
    argv = [f"--model={tiny_model}", f"--body={body}", f"--output={output}"]
    explain([*argv, "--ngram-policy=fixed", "--ngram-min-match=64"])
    shown = capsys.readouterr().out
    assert "nothing in the sources" in shown
    assert "derived" in shown


def test_the_requests_own_switches_count(
    tiny_model: Path, files: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    body, output = files
    asked = json.loads(body.read_text()) | {"ninfer": {"ngram_draft_tokens": 2}}
    body.write_text(json.dumps(asked))
    record = record_of(capsys, f"--model={tiny_model}", f"--body={body}", f"--output={output}")
    assert max(span["drafted"] for span in record["drafts"]["spans"]) == 2


@pytest.fixture
def server() -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            known = self.path == "/v1/ninfer/requests/r"
            if self.path == "/v1/ninfer/requests/locked":
                known = self.headers["Authorization"] == f"Bearer {KEY}"
            if self.path == "/v1/ninfer/requests/odd":
                self.send_error(500)
                return
            self.send_response(200 if known else 404)
            self.end_headers()
            self.wfile.write(json.dumps(RECORD if known else MISSING).encode())

        def log_message(self, *_: Any) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as listening:
        thread = threading.Thread(target=listening.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{listening.server_port}/v1"
        listening.shutdown()
        thread.join(5)


def test_a_running_servers_record_is_shown(server: str, capsys: pytest.CaptureFixture[str]) -> None:
    explain([f"--url={server}", "--request=r"])
    shown = capsys.readouterr().out
    assert "1..8" in shown
    assert "2 later rounds were not recorded" in shown
    assert record_of(capsys, f"--url={server}", "--request=r") == RECORD


@pytest.mark.parametrize("request_id", ["other", "a b", "a/b?c#d"])
def test_an_unknown_request_is_told_how_many_are_kept(server: str, request_id: str) -> None:
    with pytest.raises(ConfigError) as refused:
        explain([f"--url={server}", f"--request={request_id}"])
    assert f"no record of request '{request_id}'" in str(refused.value)
    assert "only its last --draft-records ended requests" in str(refused.value)
    assert "{" not in str(refused.value)


def test_an_answer_that_is_not_ninfers_is_not_repeated(server: str) -> None:
    with pytest.raises(ConfigError, match=r"answered 500; is it a ninfer server, with /v1") as said:
        explain([f"--url={server}", "--request=odd"])
    assert "<" not in str(said.value)


def test_the_key_may_come_from_the_environment(
    server: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    argv = [f"--url={server}", "--request=locked"]
    monkeypatch.delenv("NINFER_API_KEY", raising=False)
    with pytest.raises(ConfigError, match="no record"):
        explain(argv)
    monkeypatch.setenv("NINFER_API_KEY", KEY)
    assert record_of(capsys, *argv) == RECORD


def test_a_replay_names_the_column_cost_that_it_assumed(
    tiny_model: Path, files: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    body, output = files
    argv = [f"--model={tiny_model}", f"--body={body}", f"--output={output}"]
    explain([*argv, "--column-cost=0.02"])
    assert "a column cost of 0.02" in capsys.readouterr().out
    assert record_of(capsys, *argv)["column_cost"] == 0.007
    assert record_of(capsys, *argv, "--ngram-policy=fixed")["column_cost"] is None


def test_rounds_without_a_copy_are_looked_up_as_the_server_does(
    tiny_model: Path, files: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    body, output = files
    argv = [f"--model={tiny_model}", f"--body={body}", f"--output={output}"]
    argv += ["--ngram-draft-tokens=0", "--lookup-ngram=4"]
    spans = record_of(capsys, *argv)["drafts"]["spans"]
    assert {span["kind"] for span in spans} == {"lookup", None}
    assert max(span["drafted"] for span in spans) == 5


def test_an_empty_answer_is_refused(tiny_model: Path, files: tuple[Path, Path]) -> None:
    body, output = files
    output.write_text("")
    with pytest.raises(ConfigError, match="is empty; there is no answer to explain"):
        explain([f"--model={tiny_model}", f"--body={body}", f"--output={output}"])


REPLAY = ["--model=x", "--body=x", "--output=x"]


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        ([], "give --model, --body and --output"),
        ([*REPLAY, "--ngram-draft-tokens=64"], "use 0 to 63"),
        ([*REPLAY, "--ngram-draft-tokens=0"], "0 drafts nothing; use 1 to 63"),
        ([*REPLAY, "--ngram-min-match=-5"], "-5 is out of range; use 4 to 64"),
        ([*REPLAY, "--lookup-ngram=1"], "use 0 .off. or 2 to 64"),
        ([*REPLAY, "--column-cost=-3"], "--column-cost -3.0 is out of range; use 0 to 1"),
        ([*REPLAY, "--column-cost=nan"], "--column-cost nan is out of range"),
        ([*REPLAY, "--column-cost=0.1", "--ngram-policy=fixed"], "is for --ngram-policy adaptive"),
        ([*REPLAY, "--url=http://h/v1"], "--url asks a server; it needs --request"),
        (["--model=x", "--body=-", "--output=-"], "cannot both read standard input"),
        (["--request=r", "--body=x"], "--body replays; --request shows"),
        (["--request="], "--request is empty"),
        (["--url=foo", "--request=r"], "--url foo does not begin with http:// or https://"),
        (["--url=http://h o/v1", "--request=r"], "no record from http://h o/v1"),
        (["--url=http://h:port/v1", "--request=r"], "no record from http://h:port/v1"),
        (["--url=http://127.0.0.1:1/v1", "--request=r"], "no record from"),
    ],
)
def test_what_is_missing_is_said_in_a_sentence(argv: list[str], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        explain(argv)


def test_a_body_that_is_not_one_is_refused(tiny_model: Path, files: tuple[Path, Path]) -> None:
    body, output = files
    body.write_text('{"messages": 3}')
    with pytest.raises(ConfigError, match="not a usable body"):
        explain([f"--model={tiny_model}", f"--body={body}", f"--output={output}"])
