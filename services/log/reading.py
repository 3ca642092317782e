"""Lines out of a request log, from the oldest file that is still there, and as they are written."""

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from services.gateway.log_file import aside
from services.gateway.log_lines import ARTIFACT_TYPE, SCHEMA_VERSION, AnyLine
from shared.errors import ConfigError

POLL_S = 0.2
CHUNK_BYTES = 1 << 20

_decode = msgspec.json.Decoder(AnyLine).decode


class LogReader:
    """`skipped` counts what is no line of this log: a torn one, or another program's."""

    def __init__(self, path: Path) -> None:
        """Raises ConfigError: there is no such file."""
        if not path.is_file():
            raise ConfigError(
                f"{path} is no file; ninfer-serve writes one with --request-log-jsonl"
            )
        self._path = path
        self.skipped = 0
        self._read_bytes = 0  # of the newest file, whole lines

    def lines(self) -> Iterator[tuple[AnyLine, bytes]]:
        """Each line with its bytes, those of files set aside first."""
        number = 0
        while aside(self._path, number + 1).is_file():
            number += 1
        for older in range(number, -1, -1):
            with aside(self._path, older).open("rb") as file:
                self._read_bytes = 0
                for raw in file:
                    if not raw.endswith(b"\n"):  # its other half is not there yet
                        break
                    self._read_bytes += len(raw)
                    yield from self._parsed(raw)

    def follow(
        self, *, until: Callable[[], bool] = lambda: False
    ) -> Iterator[tuple[AnyLine, bytes]]:
        """What is written after the last of `lines`, across files that are set aside; ends once
        nothing is left and `until` holds."""
        file = self._path.open("rb")
        file.seek(self._read_bytes)
        rest = b""
        try:
            while True:
                read = file.read(CHUNK_BYTES)
                if read:
                    *whole, rest = (rest + read).split(b"\n")
                    for raw in whole:
                        yield from self._parsed(raw + b"\n")
                elif os.fstat(file.fileno()).st_size < file.tell():  # somebody emptied it
                    file.seek(0)
                    rest = b""
                elif self._is_another(file.fileno()):
                    file.close()
                    file, rest = self._path.open("rb"), b""
                elif until():
                    return
                else:
                    time.sleep(POLL_S)
        finally:
            file.close()

    def _is_another(self, descriptor: int) -> bool:
        """A new file stands under the name; the old one was read to its end."""
        mine = os.fstat(descriptor)
        try:
            there = self._path.stat()
        except FileNotFoundError:
            return False
        return mine.st_ino != there.st_ino

    def _parsed(self, raw: bytes) -> Iterator[tuple[AnyLine, bytes]]:
        if not raw.strip():
            return
        try:
            line = _decode(raw)
        except (msgspec.DecodeError, UnicodeDecodeError):
            self.skipped += 1
            return
        if line.schema_version > SCHEMA_VERSION:
            raise ConfigError(
                f"{self._path} has lines of schema version {line.schema_version}; this ninfer-log"
                f" reads {SCHEMA_VERSION}, so take the one of the server that wrote it"
            )
        assert line.artifact_type == ARTIFACT_TYPE
        yield line, raw
