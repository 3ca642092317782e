"""A Docker engine, the machine's or one of our own, and the containers on it."""

import os
import shlex
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.compose.stack import SERVICES, Stack, run
from tests.e2e.conftest import free_port

HERE = Path(__file__).parent
ENGINE_S = 400.0
BUILD_S = 900.0  # torch is downloaded, where it does not lie on disk
UP_S = 180.0


@pytest.fixture(scope="session")
def docker() -> Iterator[dict[str, str]]:
    """The environment that finds the engine."""
    if _works("docker", "version") and _works("docker", "compose", "version"):
        yield {}
        return
    folder = Path(tempfile.mkdtemp(prefix="ninfer-docker-", dir="/tmp"))
    script = ["bash", str(HERE / "engine.sh")]
    try:
        started = subprocess.run(
            [*script, "up", str(folder)],
            capture_output=True,
            text=True,
            timeout=ENGINE_S,
            check=False,
        )
        if started.returncode:
            pytest.fail(f"no Docker engine could be had: {started.stderr[-2000:]}", pytrace=False)
        yield _exports(folder / "env")
    finally:
        subprocess.run([*script, "down", str(folder)], timeout=120, check=False)


def _works(*argv: str) -> bool:
    try:
        return subprocess.run(argv, capture_output=True, timeout=30, check=False).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


def _exports(file: Path) -> dict[str, str]:
    lines = [shlex.split(line.removeprefix("export "))[0] for line in file.read_text().splitlines()]
    return dict(line.split("=", 1) for line in lines)


@pytest.fixture(scope="session")
def built(docker: dict[str, str]) -> Iterator[Stack]:
    """The image; a project that has not started."""
    port = free_port()
    environment = docker | {
        "COMPOSE_PROJECT_NAME": "ninfer-test",
        "NINFER_IMAGE": "ninfer-test",
        "NINFER_PORT": str(port),
        "NINFER_API_KEY": "",
    }
    files = ["compose.yaml"]
    # pip's own setting for wheels on disk is the build's too
    wheels = os.environ.get("PIP_FIND_LINKS", "")
    if wheels and list(Path(wheels).glob("torch-*")):
        environment["NINFER_WHEELS"] = wheels
        files.append("tests/compose/wheels.yaml")
    stack = Stack(environment, tuple(files), port)
    stack.compose("build", within_s=BUILD_S)
    yield stack
    run(["docker", "image", "rm", "--force", "ninfer-test"], environment, 60)


@pytest.fixture(scope="module")
def stack(built: Stack) -> Iterator[Stack]:
    """Everything healthy, the model fetched."""
    try:
        built.compose("up", "--detach", "--wait", within_s=UP_S)
        yield built
    finally:
        for service in SERVICES:
            tail = built.compose("logs", "--no-color", "--tail", "20", service)
            print(tail)  # noqa: T201 - shown with a failure
        built.compose("down", "--volumes", "--timeout", "30", within_s=120)
