"""The file behind the request log: appended to, and set aside when it has grown enough."""

import errno
import os
import stat
from pathlib import Path


class LogFile:
    """`FILE` is the newest; `FILE.1` is the one before it, up to `FILE.keep`.

    A file that somebody else moved away, deleted or emptied (logrotate) is begun anew at the next
    line.
    """

    def __init__(self, path: Path, *, most_bytes: int, keep: int) -> None:
        """`most_bytes` 0 never sets it aside. Raises OSError: it cannot be written."""
        self._path = path
        self._most_bytes = most_bytes
        self._keep = keep
        self._open()

    def write(self, line: bytes, first: bytes) -> None:
        """A whole line; `first` goes before it if it begins a new file.

        Raises:
            OSError: the disk is full, or the folder is gone. The line is lost, later ones are not.
        """
        if self._is_moved():
            self.close()
            self._open()
        elif self._is_regular and 0 < self._most_bytes < self._bytes + len(line) and self._bytes:
            self._set_aside()
        data = (b"" if self._bytes else first) + line
        written = os.write(self._descriptor, data)
        if written < len(data):
            if self._is_regular:  # half a line would spoil the next
                os.ftruncate(self._descriptor, self._bytes)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self._path))
        self._bytes += written

    def close(self) -> None:
        os.close(self._descriptor)

    def _open(self) -> None:
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
        self._descriptor = os.open(self._path, flags, 0o600)
        held = os.fstat(self._descriptor)
        self._bytes = held.st_size
        self._is_regular = stat.S_ISREG(held.st_mode)

    def _is_moved(self) -> bool:
        if not self._is_regular:
            return False
        mine = os.fstat(self._descriptor)
        self._bytes = mine.st_size
        try:
            there = self._path.stat()
        except FileNotFoundError:
            return True
        return (mine.st_dev, mine.st_ino) != (there.st_dev, there.st_ino)

    def _set_aside(self) -> None:
        for number in range(self._keep, 0, -1):
            older = aside(self._path, number - 1)
            if older.exists():
                older.replace(aside(self._path, number))
        if not self._keep:
            self._path.unlink()
        self.close()
        self._open()


def aside(path: Path, number: int) -> Path:
    """The name of the file that is `number` older than the newest."""
    return path.with_name(f"{path.name}.{number}") if number else path
