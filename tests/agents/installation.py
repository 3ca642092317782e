"""The agents' command line programs, installed with npm from the lock file beside this one.

`python -m tests.agents.installation` installs them.
"""

import sys
from pathlib import Path

from tests import npm_packages
from tests.npm_packages import InstallError

PROGRAMS = ("claude", "cline", "codex", "kilo", "opencode")
INSTALL_S = 900  # 600 MB to fetch


def install() -> Path:
    """The folder of the programs.

    Raises:
        InstallError: npm is missing or failed, or a program did not come with its package.
    """
    target = npm_packages.install(Path(__file__).parent, INSTALL_S)
    programs = target / "node_modules" / ".bin"
    for name in PROGRAMS:
        if not (programs / name).exists():
            raise InstallError(f"npm installed no {name}; see {target}")
    return programs


if __name__ == "__main__":
    try:
        sys.stdout.write(f"{install()}\n")
    except InstallError as exc:
        raise SystemExit(f"error: the agents cannot be installed: {exc}") from exc
