"""A real server for a benchmark: the launcher on a free port, its request log read back."""

import json
import os
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import Any

START_S = 60.0
REQUEST_S = 300.0
STOP_S = 60.0


@dataclass
class BenchServer:
    process: subprocess.Popen[bytes]
    port: int
    folder: "tempfile.TemporaryDirectory[str]"

    @classmethod
    def start(cls, model: Path, *flags: str, start_s: float = START_S) -> "BenchServer":
        """Raises SystemExit: it does not start; says the last line that it wrote."""
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        folder = tempfile.TemporaryDirectory(prefix="ninfer-bench-")
        log = Path(folder.name) / "requests.jsonl"
        stderr = Path(folder.name) / "stderr.txt"
        argv = [sys.executable, "-m", "services.launch", f"--model={model}", f"--port={port}"]
        environment = {k: v for k, v in os.environ.items() if k != "NINFER_API_KEY"}
        with stderr.open("wb") as file:
            process = subprocess.Popen(
                [*argv, f"--request-log-jsonl={log}", *flags], stderr=file, env=environment
            )
        server = cls(process, port, folder)
        end_s = time.monotonic() + start_s
        while not server._healthy():
            if time.monotonic() > end_s or process.poll() is not None:
                said = stderr.read_text(errors="replace").strip().rpartition("\n")[2]
                server.stop()
                raise SystemExit(f"the server did not start with {' '.join(flags)}: {said}")
            time.sleep(0.1)
        return server

    def ask(
        self,
        messages: list[dict[str, Any]],
        *,
        headers: dict[str, str] | None = None,
        **options: Any,
    ) -> tuple[str, dict[str, Any]]:
        """The answer's text and its `request_done` line."""
        body = json.dumps({"messages": messages, "temperature": 0, **options}).encode()
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}/v1/chat/completions",
            body,
            {"Content-Type": "application/json", **(headers or {})},
        )
        with urllib.request.urlopen(request, timeout=REQUEST_S) as response:
            answer = json.loads(response.read())
        text: str = answer["choices"][0]["message"]["content"]
        return text, self._line(answer["id"])

    def stream(self, messages: list[dict[str, Any]], **options: Any) -> list[float]:
        """When each piece of text arrived, in monotonic seconds."""
        body = json.dumps({"messages": messages, "stream": True, **options}).encode()
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}/v1/chat/completions",
            body,
            {"Content-Type": "application/json"},
        )
        times = []
        with urllib.request.urlopen(request, timeout=REQUEST_S) as response:
            for line in response:
                if line.startswith(b"data: {") and b'"delta":{"content":"' in line:
                    times.append(time.monotonic())
        return times

    def stop(self) -> None:
        self.process.terminate()
        try:
            self.process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.folder.cleanup()

    def _line(self, request_id: str) -> dict[str, Any]:
        path = Path(self.folder.name) / "requests.jsonl"
        for line in map(json.loads, reversed(path.read_text().splitlines())):
            if line["event"] == "request_done" and line["request"]["request_id"] == request_id:
                found: dict[str, Any] = line
                return found
        raise AssertionError(f"no request_done line for {request_id}")

    def _healthy(self) -> bool:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/health", timeout=2) as reply:
                return bool(reply.status == 200)
        except (urllib.error.URLError, OSError):
            return False
