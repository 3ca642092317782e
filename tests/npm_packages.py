"""Programs from npm, installed from the lock file of a test folder into the user's cache."""

import hashlib
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

FILES = ("package.json", "package-lock.json")


class InstallError(Exception):
    """One sentence and what npm said."""


def folder(here: Path) -> Path:
    """Of the packages that `here` names: used for one lock file only. $NINFER_TEST_AGENTS and so
    on, by the folder's name, choose another place than the user's cache."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    chosen = os.environ.get(f"NINFER_TEST_{here.name.upper()}")
    root = Path(chosen or cache / "ninfer" / here.name)
    content = b"".join((here / name).read_bytes() for name in FILES)
    return root / hashlib.sha256(content).hexdigest()[:16]


def install(here: Path, within_s: float, finish: Callable[[Path], None] = lambda _: None) -> Path:
    """The folder, with everything in it; `finish` does in it what npm does not.

    Raises:
        InstallError: npm is missing or failed.
    """
    target = folder(here)
    if target.is_dir():
        return target
    if shutil.which("npm") is None:
        raise InstallError("npm is missing; install Node.js 20 or newer")
    target.parent.mkdir(parents=True, exist_ok=True)
    # only a whole installation gets the final name
    partial = target.with_name(f"{target.name}.{os.getpid()}")
    partial.mkdir()
    try:
        for name in FILES:
            shutil.copy(here / name, partial / name)
        # not `npm ci`: it refuses a lock without packages for other platforms, as Kilo's are
        # published late; --no-save keeps to the lock and its checksums all the same
        npm = ["npm", "install", "--no-save", "--no-audit", "--no-fund", "--no-update-notifier"]
        try:
            done = subprocess.run(
                npm, cwd=partial, capture_output=True, text=True, timeout=within_s
            )
        except subprocess.TimeoutExpired as exc:
            raise InstallError(f"npm install took longer than {within_s:.0f} s") from exc
        if done.returncode:
            raise InstallError(f"npm install failed:\n{done.stderr[-4000:]}")
        finish(partial)
        partial.rename(target)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return target
