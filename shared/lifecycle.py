"""How a service process starts and ends, the same for each."""

import asyncio
import ctypes
import os
import signal
import sys
from collections.abc import Callable

import zmq

from shared import sockets
from shared.endpoints import Endpoints
from shared.errors import ConfigError
from shared.messages import Ready, ServiceName
from shared.wire import Codec

PR_SET_PDEATHSIG = 1  # Linux prctl(2)
SUPERVISOR_LINGER_MS = 500


def run(main: Callable[[list[str]], None]) -> None:
    """Calls `main(argv)`; a ConfigError becomes one line on stderr and exit status 2."""
    try:
        main(sys.argv[1:])
    except ConfigError as exc:
        sys.stderr.write(f"error: {exc}\n")
        raise SystemExit(2) from exc
    except KeyboardInterrupt:
        raise SystemExit(130) from None


def dies_with(parent_pid: int) -> Callable[[], None]:
    """For a child between fork and exec: SIGTERM when its parent dies, however early (Linux)."""
    if sys.platform != "linux":
        return lambda: None
    prctl = ctypes.CDLL(None).prctl

    def bind_to_parent() -> None:
        prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != parent_pid:  # it died before the call
            os._exit(1)

    return bind_to_parent


def announce(endpoints: Endpoints, service: ServiceName, facts: dict[str, str]) -> None:
    """Tells the supervisor, if there is one, that this service serves."""
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context.instance()
    socket = sockets.connect(context, zmq.PUSH, endpoints.supervisor, queue_early=True)
    socket.setsockopt(zmq.LINGER, SUPERVISOR_LINGER_MS)
    codec: Codec[Ready] = Codec(Ready)
    socket.send_multipart(
        codec.encode(Ready(service=service, pid=os.getpid(), facts=facts)), zmq.NOBLOCK
    )
    socket.close()


def stop_event() -> asyncio.Event:
    """An event that SIGTERM or SIGINT sets; call inside the running loop."""
    event = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, event.set)
    return event
