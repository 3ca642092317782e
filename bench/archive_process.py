"""The archive as a process of its own, for benchmarks."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import zmq

from shared import endpoints, sockets
from shared.messages import ArchiveToEngine, Attach, EngineToArchive
from shared.wire import Codec

WAIT_S = 60.0


class ArchiveProcess:
    """The process, and the engine's end of its socket."""

    def __init__(self, folder: Path, archive_mib: int, session_mib: int) -> None:
        self.channels = endpoints.in_directory(folder)
        argv = [sys.executable, "-m", "services.archive", f"--sockets={folder}"]
        argv += [f"--ngram-archive-mib={archive_mib}", f"--ngram-session-mib={session_mib}"]
        self.process = subprocess.Popen(argv, stderr=subprocess.DEVNULL)
        self._out: Codec[EngineToArchive] = Codec(EngineToArchive)
        self._in: Codec[ArchiveToEngine] = Codec(ArchiveToEngine)
        self._context: Any = zmq.Context()

    def connect(self) -> None:
        endpoint = self.channels.bind
        self._socket = sockets.connect(self._context, zmq.DEALER, endpoint, queue_early=True)
        self.ask(Attach(engine_id="e", generation_floor=0, bindings=()))

    def ask(self, message: EngineToArchive) -> ArchiveToEngine:
        self._socket.send_multipart(self._out.encode(message))
        if not self._socket.poll(WAIT_S * 1000):
            raise SystemExit("the archive did not answer")
        return self._in.decode(self._socket.recv_multipart())

    def resident_bytes(self) -> int:
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        line = next(line for line in status.splitlines() if line.startswith("VmRSS"))
        return 1024 * int(line.split()[1])

    def close(self) -> None:
        self.process.terminate()
        self.process.wait(20)
        self._context.destroy(linger=0)
