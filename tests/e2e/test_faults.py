"""What fails how: each process killed, start-ups refused, a clean stop."""

import json
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

import httpx2 as httpx
import pytest

from services.engine.models.tiny import write_tiny
from tests.e2e.conftest import Server, wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(120)]
Launch = Callable[..., Server]
LONG = {
    "messages": [{"role": "user", "content": "Hello"}],
    "max_tokens": 100_000,
    "stream": True,
}


@pytest.fixture(scope="module")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With so much context that LONG goes on whatever happens meanwhile."""
    folder = tmp_path_factory.mktemp("model") / "tiny"
    write_tiny(folder, max_position_embeddings=65_536)
    return folder


def test_killing_the_engine_fails_open_streams_within_two_seconds_and_it_recovers(
    tiny_model: Path, launch: Launch
) -> None:
    server = launch(tiny_model, "--ngram-draft-tokens=15")
    seen: list[str] = []
    with httpx.stream("POST", f"{server.url}/chat/completions", json=LONG, timeout=30) as response:
        lines = response.iter_lines()
        seen.append(next(lines))
        server.kill("engine")
        killed_s = time.monotonic()
        seen += list(lines)
        assert time.monotonic() - killed_s < 2.0
    last = [line for line in seen if line][-1]
    assert json.loads(last.removeprefix("data: "))["error"]["code"] == "engine_dead"
    assert httpx.get(f"http://127.0.0.1:{server.port}/health").status_code == 503
    refused = server.post({**LONG, "stream": False})
    assert refused.status_code == 503
    assert refused.headers["retry-after"]
    wait_for(server.healthy, 30)
    assert server.post({**LONG, "stream": False, "max_tokens": 3}).status_code == 200
    assert server.stop() == 0


def test_killing_the_indexer_changes_nothing_that_a_client_sees(
    tiny_model: Path, launch: Launch
) -> None:
    server = launch(tiny_model, "--ngram-draft-tokens=15")
    before = server.post({**LONG, "stream": False, "max_tokens": 50}).json()
    old = server.child("indexer")
    server.kill("indexer")
    during = server.post({**LONG, "stream": False, "max_tokens": 50}).json()
    assert during["choices"] == before["choices"]
    assert wait_for(lambda: _other_child(server, "indexer", old))
    assert b"service_died" in server.output.read_bytes()
    assert wait_for(lambda: b"service_back" in server.output.read_bytes())
    assert server.stop() == 0


def _other_child(server: Server, service: str, old: int) -> bool:
    try:
        return server.child(service) != old
    except AssertionError:
        return False


def test_killing_the_gateway_frees_its_requests_and_it_comes_back(
    tiny_model: Path, launch: Launch
) -> None:
    server = launch(tiny_model)

    def ask() -> None:
        try:
            server.post(LONG)
        except httpx.HTTPError:
            return  # the gateway died under it, as intended

    client = threading.Thread(target=ask)
    client.start()
    health = f"http://127.0.0.1:{server.port}/health"
    wait_for(lambda: "request_start" in server.log.read_text())
    server.kill("gateway")
    client.join()
    wait_for(server.healthy, 30)
    assert wait_for(lambda: httpx.get(health).json()["running"] == 0)
    assert server.stop() == 0


def test_sigterm_ends_open_streams_and_leaves_no_process_or_socket(
    tiny_model: Path, launch: Launch
) -> None:
    sockets = Path(tempfile.mkdtemp(prefix="ninfer-test-"))
    server = launch(tiny_model, f"--sockets={sockets}", "--drain-s=1")
    children = [server.child(name) for name in ("gateway", "engine", "indexer")]
    with httpx.stream("POST", f"{server.url}/chat/completions", json=LONG, timeout=60) as response:
        next(response.iter_lines())
        assert server.stop() == 0
    assert not [pid for pid in children if Path(f"/proc/{pid}").exists()]
    assert list(sockets.glob("*.sock")) == []
    sockets.rmdir()


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--no-such-option"], "unrecognized arguments: --no-such-option"),
        (["--log-level=loud"], "invalid choice: 'loud'"),
        (["--spec=mtp"], "has no such drafter"),
        (["--weights=int8", "--dtype=float32"], "--weights int8 goes with --dtype bfloat16 only"),
        (["--ngram-draft-tokens=64"], "use 0 to 63"),
        (["--ngram-min-match=3"], "use 4 to 64"),
        (["--ngram-archive-mib=8"], "needs copies to serve: set --ngram-draft-tokens"),
        (["--ngram-session-mib=8"], "--ngram-session-mib needs --ngram-archive-mib"),
        (["--ngram-archive-mib=8", "--ngram-session-mib=9"], "use 1 to 8"),
        (["--ngram-native-sessions"], "--ngram-native-sessions needs --ngram-archive-mib"),
        (["--host=0.0.0.0"], "needs --api-key"),
        (["--model=/nowhere"], "holds no config.json"),
        (["--threads=-1"], "--threads -1 is out of range"),
        (["--request-log-jsonl=/nowhere/log.jsonl"], "its folder does not exist"),
    ],
)
def test_a_bad_option_stops_the_start_with_one_sentence(
    tiny_model: Path, flags: list[str], words: str
) -> None:
    argv = [sys.executable, "-m", "services.launch", f"--model={tiny_model}", "--port=1", *flags]
    ended = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 2
    errors = [line for line in ended.stderr.splitlines() if line.startswith("error: ")]
    assert len(errors) == 1
    assert words in errors[0]
    assert "Traceback" not in ended.stderr


def test_a_port_in_use_is_named(tiny_model: Path, launch: Launch) -> None:
    server = launch(tiny_model)
    argv = [sys.executable, "-m", "services.launch", f"--model={tiny_model}"]
    ended = subprocess.run(
        [*argv, f"--port={server.port}"], capture_output=True, text=True, timeout=60, check=False
    )
    assert ended.returncode == 2
    assert f"port {server.port} is in use" in ended.stderr
    assert server.stop() == 0


def test_what_is_open_when_the_drain_time_ends_gets_an_error_and_a_log_line(
    tiny_model: Path, launch: Launch
) -> None:
    server = launch(tiny_model, "--drain-s=0.2", "--max-concurrency=1")
    answers: list[httpx.Response] = []
    waiting = threading.Thread(
        target=lambda: answers.append(server.post({**LONG, "stream": False}))
    )
    with httpx.stream("POST", f"{server.url}/chat/completions", json=LONG, timeout=60) as response:
        lines = response.iter_lines()
        next(lines)
        waiting.start()
        wait_for(lambda: server.log.read_text().count("request_start") == 2)
        assert server.stop() == 0
        last = [line for line in lines if line][-1]
    waiting.join()
    assert json.loads(last.removeprefix("data: "))["error"]["message"] == (
        "the server is shutting down"
    )
    assert answers[0].status_code == 503
    events = [json.loads(line)["event"] for line in server.log.read_text().splitlines()]
    assert events.count("request_error") == 2
    assert b"service_killed" not in server.output.read_bytes()


@pytest.mark.parametrize("delay_s", [0.05, 0.3, 1.0])
def test_a_killed_launcher_leaves_no_orphan(tiny_model: Path, delay_s: float) -> None:
    argv = [sys.executable, "-m", "services.launch", f"--model={tiny_model}", "--port=1"]
    launcher = subprocess.Popen(argv, stderr=subprocess.DEVNULL)
    time.sleep(delay_s)
    if delay_s == 1.0:
        wait_for(lambda: _children(launcher.pid))  # the latest of the three moments
    children = _children(launcher.pid)
    launcher.kill()
    launcher.wait()
    wait_for(lambda: not [pid for pid in children if _is_running(pid)], 10)


def _children(parent: int) -> list[int]:
    task = Path(f"/proc/{parent}/task/{parent}/children")
    return [int(pid) for pid in task.read_text().split()]


def _is_running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except OSError:
        return False
    return state != "Z"


def test_the_key_is_in_no_process_list_and_the_curl_line_asks_for_it(
    tiny_model: Path, launch: Launch
) -> None:
    server = launch(tiny_model, "--api-key=sekret")
    assert b"Bearer YOUR_KEY" in server.output.read_bytes()
    argv = Path(f"/proc/{server.child('gateway')}/cmdline").read_bytes()
    assert b"sekret" not in argv
    assert httpx.get(f"{server.url}/models").status_code == 401
    headers = {"x-api-key": "sekret"}
    assert httpx.get(f"{server.url}/models", headers=headers).status_code == 200
