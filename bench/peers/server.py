"""Another project's server for a benchmark: a process of its own, held while it is not asked."""

import os
import signal
import socket
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import IO

from bench.serving.client import ChatClient

POLL_S = 0.2
STOP_S = 30.0


class PeerMissing(Exception):
    """The peer cannot run here; says why in one sentence."""


@dataclass(frozen=True)
class Setting:
    """One way to run a peer. `--host` and `--port` are added to `argv`."""

    peer: str
    weights: str
    drafts: str  # what proposes its drafts; "none" for plain decoding
    argv: Sequence[str]
    start_s: float
    environment: dict[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return f"{self.peer} {self.weights}" + f", {self.drafts}" * (self.drafts != "none")


class PeerServer:
    """The processes get no time between two `awake`, so that only one server is ever busy."""

    def __init__(self, setting: Setting) -> None:
        """Starts it and waits until it is healthy.

        Raises:
            PeerMissing: it does not start; says the last line that it wrote.
        """
        self.setting = setting
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self._port = probe.getsockname()[1]
        with tempfile.TemporaryFile() as output:
            try:
                self._process = subprocess.Popen(
                    [*setting.argv, "--host", "127.0.0.1", "--port", str(self._port)],
                    env={**os.environ, **setting.environment},
                    stdout=output,
                    stderr=output,
                    start_new_session=True,  # its helpers are held and stopped with it
                )
            except OSError as exc:
                raise PeerMissing(f"{setting.name} does not start: {exc}") from exc
            try:
                self._wait(output)
            except BaseException:
                self.stop()
                raise
        self.client = ChatClient(f"http://127.0.0.1:{self._port}")
        self._signal(signal.SIGSTOP)

    @property
    def pid(self) -> int:
        return self._process.pid

    @contextmanager
    def awake(self) -> Iterator[ChatClient]:
        self._signal(signal.SIGCONT)
        try:
            yield self.client
        finally:
            self._signal(signal.SIGSTOP)

    def stop(self) -> None:
        self._signal(signal.SIGTERM)
        self._signal(signal.SIGCONT)
        try:
            self._process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self._signal(signal.SIGKILL)
            self._process.wait()

    def _wait(self, output: IO[bytes]) -> None:
        end_s = time.monotonic() + self.setting.start_s
        while not self._healthy():
            if time.monotonic() > end_s or self._process.poll() is not None:
                output.seek(0)
                said = output.read().decode(errors="replace").strip().rpartition("\n")[2]
                raise PeerMissing(f"{self.setting.name} does not start: {said[:300]}")
            time.sleep(POLL_S)

    def _signal(self, number: int) -> None:
        try:
            os.killpg(self._process.pid, number)
        except ProcessLookupError:  # it has ended by itself
            return

    def _healthy(self) -> bool:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self._port}/health", timeout=5) as said:
                return bool(said.status == 200)
        except (urllib.error.URLError, OSError):
            return False
