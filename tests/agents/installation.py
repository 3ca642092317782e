"""The agents' command line programs, installed with npm from the lock file beside this one.

`python -m tests.agents.installation` installs them; a folder is used for one lock file only.
"""

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
FILES = ("package.json", "package-lock.json")
PROGRAMS = ("claude", "cline", "codex", "kilo", "opencode")
INSTALL_S = 900  # 600 MB to fetch


class InstallError(Exception):
    """One sentence and what npm said."""


def folder() -> Path:
    """$NINFER_TEST_AGENTS, or a folder of the user's cache."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    root = Path(os.environ.get("NINFER_TEST_AGENTS") or cache / "ninfer" / "agents")
    content = b"".join((HERE / name).read_bytes() for name in FILES)
    return root / hashlib.sha256(content).hexdigest()[:16]


def install() -> Path:
    """The folder of the programs.

    Raises:
        InstallError: npm is missing or failed, or a program did not come with its package.
    """
    target = folder()
    if not target.is_dir():
        _install_into(target)
    programs = target / "node_modules" / ".bin"
    for name in PROGRAMS:
        if not (programs / name).exists():
            raise InstallError(f"npm installed no {name}; see {target}")
    return programs


def _install_into(target: Path) -> None:
    if shutil.which("npm") is None:
        raise InstallError("npm is missing; install Node.js 20 or newer")
    target.parent.mkdir(parents=True, exist_ok=True)
    # only a whole installation gets the final name
    partial = target.with_name(f"{target.name}.{os.getpid()}")
    partial.mkdir()
    try:
        for name in FILES:
            shutil.copy(HERE / name, partial / name)
        # not `npm ci`: it refuses a lock without packages for other platforms, as Kilo's are
        # published late; --no-save keeps to the lock and its checksums all the same
        npm = ["npm", "install", "--no-save", "--no-audit", "--no-fund", "--no-update-notifier"]
        try:
            done = subprocess.run(
                npm, cwd=partial, capture_output=True, text=True, timeout=INSTALL_S
            )
        except subprocess.TimeoutExpired as exc:
            raise InstallError(f"npm install took longer than {INSTALL_S} s") from exc
        if done.returncode:
            raise InstallError(f"npm install failed:\n{done.stderr[-4000:]}")
        partial.rename(target)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


if __name__ == "__main__":
    try:
        sys.stdout.write(f"{install()}\n")
    except InstallError as exc:
        raise SystemExit(f"error: the agents cannot be installed: {exc}") from exc
