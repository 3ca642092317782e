"""A real server: the launcher and its three processes, on a free port."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2 as httpx
import pytest

START_S = 60.0


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def wait_for(condition: Callable[[], Any], deadline_s: float = 30.0) -> Any:
    end_s = time.monotonic() + deadline_s
    while time.monotonic() < end_s:
        if found := condition():
            return found
        time.sleep(0.05)
    raise AssertionError("the condition never held")


@dataclass
class Server:
    process: subprocess.Popen[bytes]
    port: int
    log: Path
    output: Path

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    def healthy(self) -> bool:
        try:
            return httpx.get(f"http://127.0.0.1:{self.port}/health", timeout=5).status_code == 200
        except httpx.HTTPError:
            return False

    def all_up(self) -> bool:
        """Every service, as the gateway sees it."""
        try:
            answer = httpx.get(f"http://127.0.0.1:{self.port}/health", timeout=5)
        except httpx.HTTPError:
            return False
        return answer.status_code == 200 and set(answer.json()["services"].values()) == {"ok"}

    def is_idle(self) -> bool:
        health = httpx.get(f"http://127.0.0.1:{self.port}/health", timeout=5).json()
        return health["running"] == health["waiting"] == 0

    def post(self, body: Any, **options: Any) -> httpx.Response:
        return httpx.post(f"{self.url}/chat/completions", json=body, timeout=50, **options)

    def child(self, service: str) -> int:
        """The pid of a service, from the kernel's own table."""
        for entry in Path("/proc").glob("[0-9]*"):
            try:
                parts = (entry / "cmdline").read_bytes().split(b"\0")
                parent = int((entry / "stat").read_text().rsplit(")", 1)[1].split()[1])
            except (OSError, IndexError):
                continue
            if parent == self.process.pid and f"services.{service}".encode() in parts:
                return int(entry.name)
        raise AssertionError(f"no {service} process")

    def kill(self, service: str) -> None:
        os.kill(self.child(service), signal.SIGKILL)

    def stop(self) -> int:
        self.process.terminate()
        return self.process.wait(30)


def start(folder: Path, model: Path, *flags: str) -> Server:
    port = free_port()
    log = folder / "requests.jsonl"
    output = folder / "stderr.txt"
    argv = [sys.executable, "-m", "services.launch", f"--model={model}", f"--port={port}"]
    with output.open("wb") as stderr:
        process = subprocess.Popen(
            [*argv, f"--request-log-jsonl={log}", *flags], stderr=stderr, stdout=stderr
        )
    server = Server(process, port, log, output)
    try:
        wait_for(server.healthy, START_S)
        wait_for(lambda: b"Try it:" in output.read_bytes(), START_S)
    except AssertionError:
        process.kill()
        raise AssertionError(output.read_text()[-4000:]) from None
    return server


@pytest.fixture
def launch(tmp_path: Path) -> Iterator[Callable[..., Server]]:
    """Starts servers that are stopped at the test's end, however it ends."""
    started: list[Server] = []

    def run(model: Path, *flags: str) -> Server:
        started.append(start(tmp_path, model, *flags))
        return started[-1]

    yield run
    for server in started:
        if server.process.poll() is None:
            server.stop()


@pytest.fixture(scope="module")
def server(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Random weights: for protocol and faults. Its two rows decode fast and never stop early."""
    folder = tmp_path_factory.mktemp("server")
    running = start(
        folder, tiny_model, "--max-concurrency=2", "--max-waiting=2", "--ngram-draft-tokens=15"
    )
    yield running
    assert running.stop() == 0


@pytest.fixture(scope="module")
def demo_server(demo_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("demo")
    running = start(folder, demo_model, "--ngram-draft-tokens=63", "--ngram-min-match=4")
    yield running
    assert running.stop() == 0
