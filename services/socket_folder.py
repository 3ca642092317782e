"""The folder of a server's Unix sockets: held by one launcher, and gone with it."""

import contextlib
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from shared import endpoints
from shared.errors import ConfigError

PREFIX = "ninfer-serve-"


@contextlib.contextmanager
def socket_folder(chosen: Path | None) -> Iterator[Path]:
    """The chosen folder, or a temporary one that is removed at the end.

    Temporary ones that killed launchers have left are removed too.

    Raises:
        ConfigError: another launcher holds the chosen folder, or it cannot hold sockets.
    """
    _sweep()
    if chosen is not None:
        endpoints.in_directory(chosen)
        lock = _lock(chosen)
        if lock is None:
            raise ConfigError(f"--sockets {chosen} is in use by another ninfer-serve")
        try:
            yield chosen
        finally:
            os.close(lock)
        return
    folder, lock = _temporary()
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(lock)


def _temporary() -> tuple[Path, int]:
    """A new folder and its lock; once more if a sweep took it between the two."""
    while True:
        folder = Path(tempfile.mkdtemp(prefix=PREFIX))
        lock = _lock(folder)
        if lock is not None:
            if folder.exists():
                return folder, lock
            os.close(lock)


def _lock(folder: Path) -> int | None:
    """A descriptor that holds the folder until it is closed or its process dies."""
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    return descriptor


def _sweep() -> None:
    for folder in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        with contextlib.suppress(OSError):  # another user's, or just removed
            if folder.lstat().st_uid != os.getuid() or (lock := _lock(folder)) is None:
                continue
            shutil.rmtree(folder, ignore_errors=True)
            os.close(lock)
