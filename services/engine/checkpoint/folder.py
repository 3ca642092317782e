"""Writing a model folder so that it appears whole or not at all."""

import errno
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from shared.errors import CheckpointError

# What a conversion writes. A folder that holds anything else is somebody's and is never replaced.
FILES = (
    "config.json",
    "generation_config.json",
    "model.safetensors",
    "tokenizer.json",
    "tokenizer_config.json",
    "chat_template.jinja",
)


@contextmanager
def appearing(destination: Path) -> Iterator[Path]:
    """A temporary sibling of `destination` that takes its name when the block ends well.

    On any error the sibling is removed and `destination` is as it was.

    Raises:
        CheckpointError: `destination` holds other files, or the disk refuses.
    """
    destination = destination.absolute()
    refuse_foreign(destination)
    with disk_errors(destination):
        destination.parent.mkdir(parents=True, exist_ok=True)
        draft = Path(tempfile.mkdtemp(prefix=f".{destination.name}.", dir=destination.parent))
        try:
            draft.chmod(0o755)  # mkdtemp's 700 would hide the model from a container's user
            yield draft
            for path in (*draft.iterdir(), draft):
                _flush(path)
            _replace(draft, destination)
            _flush(destination.parent)
        finally:
            shutil.rmtree(draft, ignore_errors=True)


@contextmanager
def disk_errors(path: Path) -> Iterator[None]:
    """Turns the operating system's refusals into a `CheckpointError` of one sentence."""
    try:
        yield
    except OSError as exc:
        where = exc.filename or path
        if exc.errno in (errno.ENOSPC, errno.EDQUOT):
            raise CheckpointError(f"the disk that holds {path.parent} is full") from exc
        raise CheckpointError(f"cannot use {where}: {exc.strerror or exc}") from exc


def refuse_foreign(destination: Path) -> None:
    """Raises `CheckpointError` if writing `destination` would delete what is not a model's."""
    if not destination.exists():
        return
    if not destination.is_dir():
        raise CheckpointError(f"{destination} exists and is not a folder")
    foreign = sorted(entry.name for entry in destination.iterdir() if entry.name not in FILES)
    if foreign:
        raise CheckpointError(
            f"{destination} holds other files ({foreign[0]}); choose an empty or new folder"
        )


def _replace(draft: Path, destination: Path) -> None:
    if destination.is_dir() and any(destination.iterdir()):
        # the old folder steps aside first: a rename onto a folder that is not empty fails
        aside = Path(tempfile.mkdtemp(prefix=f".{destination.name}.", dir=destination.parent))
        destination.rename(aside / "old")
        draft.rename(destination)
        shutil.rmtree(aside, ignore_errors=True)
    else:
        draft.rename(destination)


def _flush(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
