"""The containers of compose.yaml, as a test drives them."""

import contextlib
import json
import os
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2 as httpx

ROOT = Path(__file__).parents[2]
SERVICES = ("gateway", "engine", "indexer", "archive")
# `docker kill` would count as stopped by hand and not be restarted: this is how a crash looks
CRASH = (
    "import os, pathlib; "
    "os.kill(int(pathlib.Path('/proc/1/task/1/children').read_text().split()[0]), 9)"
)


def wait_for(condition: Callable[[], Any], deadline_s: float = 60.0) -> Any:
    end_s = time.monotonic() + deadline_s
    while time.monotonic() < end_s:
        if found := condition():
            return found
        time.sleep(0.1)
    raise AssertionError("the condition never held")


@dataclass
class Stack:
    """One project of its own name, volumes and port."""

    environment: dict[str, str]
    files: tuple[str, ...]
    port: int

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    def compose(self, *argv: str, within_s: float = 60.0) -> str:
        """Its output; raises AssertionError with what it said."""
        files = [part for name in self.files for part in ("-f", name)]
        return run(["docker", "compose", *files, *argv], self.environment, within_s)

    def inspect(self, service: str) -> dict[str, Any]:
        """What the engine says of the service's container, running or not."""
        identity = self.compose("ps", "--all", "--quiet", service).strip()
        assert identity, f"there is no container of {service}"
        described = run(["docker", "inspect", identity], self.environment, 30.0)
        found: dict[str, Any] = json.loads(described)[0]
        return found

    def inside(self, service: str, *argv: str) -> str:
        return self.compose("exec", "-T", service, *argv)

    def crash(self, service: str) -> None:
        """SIGKILL for its process; returns when the container has started again."""
        before = self.inspect(service)["RestartCount"]
        with contextlib.suppress(AssertionError):  # the exec may die with its container
            self.inside(service, "python", "-c", CRASH)
        wait_for(lambda: self.inspect(service)["RestartCount"] > before)

    def health(self) -> httpx.Response | None:
        try:
            return httpx.get(f"http://127.0.0.1:{self.port}/health", timeout=5)
        except httpx.HTTPError:
            return None

    def services(self) -> dict[str, str]:
        answer = self.health()
        return {} if answer is None else answer.json()["services"]

    def is_whole(self) -> bool:
        answer = self.health()
        return answer is not None and answer.status_code == 200 and self.all_up()

    def all_up(self) -> bool:
        return self.services() == dict.fromkeys(SERVICES, "ok")

    def ask(self, body: dict[str, Any], **headers: str) -> httpx.Response:
        url = f"{self.url}/chat/completions"
        return httpx.post(url, json=body, headers=headers, timeout=60)

    def log_lines(self) -> list[dict[str, Any]]:
        text = self.inside("gateway", "cat", "/logs/requests.jsonl")
        return [json.loads(line) for line in text.splitlines()]


def run(argv: list[str], environment: dict[str, str], within_s: float) -> str:
    ended = subprocess.run(
        argv,
        env={**os.environ, **environment},
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=within_s,
        check=False,
    )
    assert ended.returncode == 0, f"{' '.join(argv)}:\n{ended.stdout[-2000:]}{ended.stderr[-4000:]}"
    return ended.stdout
