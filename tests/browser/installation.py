"""Headless Chromium as npm ships it: `python -m tests.browser.installation` installs it.

The package holds the browser compressed, with the libraries that a bare machine lacks.
"""

import os
import subprocess
import sys
from pathlib import Path

from tests import npm_packages
from tests.npm_packages import InstallError

INSTALL_S = 300  # 70 MB to fetch
EXPAND_S = 120
LIBRARIES = "al2023/lib"
# Its own way to unpack; this variable makes it unpack the libraries too, which are for any Linux.
EXPAND = """
import chromium from "@sparticuz/chromium";
console.log(await chromium.executablePath());
"""


def install() -> Path:
    """The program.

    Raises:
        InstallError: npm or node is missing or failed, or the program does not start here.
    """
    target = npm_packages.install(Path(__file__).parent, INSTALL_S, _expand)
    program = target / "chromium"
    try:
        done = subprocess.run(
            [program, "--version"],
            env=environment(program),
            capture_output=True,
            text=True,
            timeout=EXPAND_S,
        )
    except (OSError, subprocess.TimeoutExpired) as exc:
        raise InstallError(f"{program} does not start: {exc}") from exc
    if done.returncode:
        raise InstallError(f"{program} does not start:\n{done.stderr[-2000:]}")
    return program


def environment(program: Path) -> dict[str, str]:
    """With the package's libraries behind the machine's own, which are newer."""
    own = subprocess.run(["ldd", program], capture_output=True, text=True, timeout=EXPAND_S).stdout
    if "not found" not in own:
        return dict(os.environ)
    return {**os.environ, "LD_LIBRARY_PATH": str(program.parent / LIBRARIES)}


def _expand(folder: Path) -> None:
    # it unpacks into the folder for temporary files
    variables = {**os.environ, "TMPDIR": str(folder), "AWS_LAMBDA_JS_RUNTIME": "nodejs22.x"}
    done = subprocess.run(
        ["node", "--input-type=module", "-e", EXPAND],
        cwd=folder,
        env=variables,
        capture_output=True,
        text=True,
        timeout=EXPAND_S,
    )
    if done.returncode or not (folder / "chromium").is_file():
        raise InstallError(f"Chromium cannot be unpacked:\n{done.stderr[-2000:]}")


if __name__ == "__main__":
    try:
        sys.stdout.write(f"{install()}\n")
    except InstallError as exc:
        raise SystemExit(f"error: Chromium cannot be installed: {exc}") from exc
