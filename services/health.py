"""`python -m services.health --service=NAME`: is it there? Exit status 0 or 1, for health checks.

The gateway is asked over HTTP and answers for the whole server. The others are greeted at their
socket, which they bind when they are ready to serve: a process that has not come so far, is
stopped or is dead leaves the greeting unanswered. It imports little, since it runs every few
seconds.
"""

import sys
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import zmq

from shared import endpoints, lifecycle, options
from shared.endpoints import Endpoints
from shared.errors import ConfigError
from shared.options import option

# service -> the kind of socket that its own takes, and where that is
GREETED: dict[str, tuple[int, Callable[[Endpoints], str]]] = {
    "engine": (zmq.DEALER, lambda channels: channels.generate),
    "indexer": (zmq.PUSH, lambda channels: channels.build),
    "archive": (zmq.DEALER, lambda channels: channels.sessions),
}


@dataclass(frozen=True)
class HealthConfig:
    service: str = option(help="which", choices=("gateway", *GREETED))
    sockets: Path | None = option(None, "folder of the Unix sockets; for all but the gateway")
    url: str = option("http://127.0.0.1:8080/health", "where the gateway answers")
    within_s: float = option(3.0, "seconds for an answer")


def is_healthy(config: HealthConfig) -> bool:
    """Raises ConfigError: no folder is given for a service that is met at a socket."""
    if config.service == "gateway":
        return answers(config.url, config.within_s)
    if config.sockets is None:
        raise ConfigError(f"--service={config.service} needs --sockets")
    kind, endpoint_of = GREETED[config.service]
    return greets(kind, endpoint_of(endpoints.in_directory(config.sockets)), config.within_s)


def answers(url: str, within_s: float) -> bool:
    """With a status of 200."""
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with direct.open(url, timeout=within_s) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False


def greets(kind: int, endpoint: str, within_s: float) -> bool:
    """Whether ZeroMQ's handshake is returned in time; no message is sent."""
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    socket = context.socket(kind)
    monitor = socket.get_monitor_socket(zmq.EVENT_HANDSHAKE_SUCCEEDED)
    try:
        socket.connect(endpoint)
        return bool(monitor.poll(int(within_s * 1000)))  # the only event that it asked for
    finally:
        socket.disable_monitor()
        monitor.close()
        context.destroy(linger=0)


def main(argv: list[str]) -> None:
    config = options.parse(HealthConfig, argv, prog="services.health", about=__doc__ or "")
    if not is_healthy(config):
        sys.stderr.write(f"{config.service} does not answer\n")
        raise SystemExit(1)


if __name__ == "__main__":
    lifecycle.run(main)
