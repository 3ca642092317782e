"""The launcher: what it does with services that will not start, will not end, or share a folder."""

import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
import zmq
from structlog.testing import capture_logs

from services.launch import Supervisor
from services.socket_folder import PREFIX, socket_folder
from shared import sockets
from shared.endpoints import in_directory
from shared.errors import ConfigError
from tests.e2e.conftest import Server, wait_for

Launch = Callable[..., Server]
SERVICES = ("gateway", "engine", "indexer")


def supervise(
    folder: Path, program: str, until: Callable[[list[dict[str, object]]], bool], **options: float
) -> tuple[list[dict[str, object]], Supervisor]:
    """What a supervisor of one such indexer logs until the condition holds."""
    argv = [sys.executable, "-c", program]
    supervisor = Supervisor(
        in_directory(folder), {"indexer": argv}, drain_s=0.0, secrets={}, **options
    )
    with capture_logs() as logs:
        thread = threading.Thread(target=supervisor.run, args=(lambda: None,))
        thread.start()
        try:
            wait_for(lambda: until(list(logs)))
        finally:
            supervisor.stop()
            thread.join()
    return list(logs), supervisor


def test_a_service_that_keeps_dying_is_started_ever_later(short_folder: Path) -> None:
    logs, supervisor = supervise(
        short_folder / "s", "raise SystemExit(1)", lambda logs: len(logs) >= 3
    )
    assert [line["event"] for line in logs[:3]] == ["service_died"] * 3
    waits = [line["restart_in_s"] for line in logs[:3]]
    assert waits == sorted(set(waits))  # type: ignore[type-var]
    assert supervisor.children[0].process.poll() is not None


def test_a_service_that_runs_long_and_never_serves_is_started_ever_later(
    short_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("services.launch.STEADY_S", 0.0)  # any run is long
    logs, _ = supervise(short_folder / "s", "raise SystemExit(1)", lambda logs: len(logs) >= 3)
    waits = [line["restart_in_s"] for line in logs[:3]]
    assert waits == sorted(set(waits))  # type: ignore[type-var]


def test_a_service_that_never_gets_ready_is_started_again(short_folder: Path) -> None:
    events = [
        line["event"]
        for line in supervise(
            short_folder / "s",
            "import time; time.sleep(600)",
            lambda logs: [line["event"] for line in logs].count("service_never_ready") >= 2,
            ready_s=0.2,
        )[0]
    ]
    assert events[:3] == ["service_never_ready", "service_died", "service_never_ready"]


def test_a_flood_of_garbage_keeps_no_death_unseen(short_folder: Path) -> None:
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    channels = in_directory(short_folder / "s")
    mad = sockets.connect(context, zmq.PUSH, channels.supervisor, queue_early=True)
    quiet = threading.Event()

    def flood() -> None:
        while not quiet.is_set():
            with contextlib.suppress(zmq.Again):
                mad.send(b"garbage", zmq.NOBLOCK)

    thread = threading.Thread(target=flood)
    thread.start()
    try:
        logs, _ = supervise(
            short_folder / "s",
            "raise SystemExit(1)",
            lambda logs: any(line["event"] == "service_died" for line in logs),
        )
    finally:
        quiet.set()
        thread.join()
        context.destroy(linger=0)
    assert any(line["event"] == "garbage" for line in logs)


def test_a_folder_has_one_launcher_and_the_next_finds_it_free(short_folder: Path) -> None:
    chosen = short_folder / "s"
    with (
        socket_folder(chosen),
        pytest.raises(ConfigError, match="in use"),
        socket_folder(chosen),
    ):
        pass
    with socket_folder(chosen) as folder:
        assert folder == chosen
    assert chosen.is_dir()


def test_a_temporary_folder_goes_with_its_launcher_and_after_a_killed_one(
    short_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(short_folder))
    left = short_folder / f"{PREFIX}left"
    left.mkdir()
    (left / "supervisor.sock").touch()
    other = short_folder / "another-program"
    other.mkdir()
    with socket_folder(None) as first, socket_folder(None) as second:
        assert first != second
        assert {first, second, other} == set(short_folder.iterdir())
    assert [other] == list(short_folder.iterdir())


@pytest.mark.e2e
@pytest.mark.timeout(120)
def test_a_second_signal_ends_a_server_at_once_whose_service_hangs(
    tiny_model: Path, launch: Launch, short_folder: Path
) -> None:
    """The hanging one would be waited for as long as the timeout of this test and more."""
    sockets = short_folder / "s"
    server = launch(tiny_model, f"--sockets={sockets}", "--drain-s=600")
    children = [server.child(name) for name in SERVICES]
    os.kill(server.child("engine"), signal.SIGSTOP)
    server.process.terminate()
    wait_for(lambda: not Path(f"/proc/{children[0]}").exists())  # it ends the gateway first
    server.process.terminate()
    assert server.process.wait(20) == 0
    assert b"service_killed" in server.output.read_bytes()
    assert not [pid for pid in children if Path(f"/proc/{pid}").exists()]
    assert list(sockets.iterdir()) == []


@pytest.mark.e2e
@pytest.mark.timeout(120)
def test_two_servers_do_not_share_a_folder(
    tiny_model: Path, launch: Launch, short_folder: Path
) -> None:
    sockets = short_folder / "s"
    server = launch(tiny_model, f"--sockets={sockets}")
    argv = [sys.executable, "-m", "services.launch", f"--model={tiny_model}", "--port=1"]
    second = subprocess.run(
        [*argv, f"--sockets={sockets}"], capture_output=True, text=True, timeout=60, check=False
    )
    assert second.returncode == 2
    assert second.stderr == f"error: --sockets {sockets} is in use by another ninfer-serve\n"
    assert server.healthy()
    assert server.stop() == 0
