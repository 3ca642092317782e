"""The probe of the health checks: what it takes for being there, and what not."""

import http.server
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import zmq

from services.health import HealthConfig, is_healthy
from shared import sockets
from shared.endpoints import Endpoints, in_directory
from shared.errors import ConfigError

SERVED = {
    "engine": (zmq.ROUTER, "generate"),
    "indexer": (zmq.PULL, "build"),
    "archive": (zmq.ROUTER, "sessions"),
}


@contextmanager
def bound(channels: Endpoints, service: str) -> Iterator["zmq.Socket[bytes]"]:
    kind, name = SERVED[service]
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    socket: zmq.Socket[bytes] = sockets.bind(context, kind, getattr(channels, name))
    yield socket
    socket.close()
    context.destroy(linger=0)


@contextmanager
def http_server(status: int) -> Iterator[str]:
    class Answer(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            return

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answer) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/health"
        server.shutdown()
        thread.join()


def of(service: str, folder: Path, within_s: float = 5.0) -> HealthConfig:
    return HealthConfig(service=service, sockets=folder, within_s=within_s)


@pytest.mark.parametrize("service", SERVED)
def test_a_service_that_has_bound_its_socket_is_there_and_hears_nothing(
    service: str, short_folder: Path
) -> None:
    with bound(in_directory(short_folder / "s"), service) as socket:
        assert is_healthy(of(service, short_folder / "s"))
        assert not socket.poll(50)


@pytest.mark.parametrize("service", SERVED)
def test_a_service_that_has_not_started_or_has_died_is_not_there(
    service: str, short_folder: Path
) -> None:
    with bound(in_directory(short_folder / "s"), service):
        pass
    assert not is_healthy(of(service, short_folder / "s", within_s=0.2))


def test_a_stopped_process_is_not_there(short_folder: Path) -> None:
    program = (
        "import sys, zmq, signal; socket = zmq.Context().socket(zmq.ROUTER); "
        "socket.bind(sys.argv[1]); print(flush=True); signal.pause()"
    )
    endpoint = in_directory(short_folder / "s").generate
    with subprocess.Popen(
        [sys.executable, "-c", program, endpoint], stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        assert is_healthy(of("engine", short_folder / "s"))
        process.send_signal(signal.SIGSTOP)
        assert not is_healthy(of("engine", short_folder / "s", within_s=0.3))
        process.kill()


@pytest.mark.parametrize(("status", "expected"), [(200, True), (503, False)])
def test_the_gateway_is_there_when_it_says_that_the_server_is(status: int, expected: bool) -> None:
    with http_server(status) as url:
        assert is_healthy(HealthConfig(service="gateway", url=url)) is expected


def test_a_service_with_a_socket_needs_its_folder() -> None:
    with pytest.raises(ConfigError, match="--sockets"):
        is_healthy(HealthConfig(service="engine"))


def test_the_probe_says_what_does_not_answer(short_folder: Path) -> None:
    argv = [sys.executable, "-m", "services.health", "--service=archive", "--within-s=0.1"]
    ended = subprocess.run(
        [*argv, f"--sockets={short_folder / 's'}"], capture_output=True, text=True, check=False
    )
    assert (ended.returncode, ended.stderr) == (1, "archive does not answer\n")
