"""ZeroMQ sockets with the project's settings, and its errors translated.

Queues are bounded (a full one makes a non-blocking send raise `zmq.Again`, which the sender turns
into a dropped accelerator message or a 429), nothing lingers at exit, and a connecting socket
queues only while its peer is there, so a message never waits for a process that is dead.
"""

from pathlib import Path
from typing import Any

import zmq

from shared.errors import ConfigError

QUEUE_MESSAGES = 10_000


def bind(context: Any, kind: int, endpoint: str) -> Any:
    """A bound socket (asyncio's kind if the context is). A stale ipc file is replaced.

    Raises:
        ConfigError: the address cannot be bound.
    """
    socket = _open(context, kind)
    try:
        socket.bind(endpoint)
    except zmq.ZMQError as exc:
        socket.close()
        raise ConfigError(f"cannot bind {endpoint}: {exc.strerror or exc}") from exc
    return socket


def connect(context: Any, kind: int, endpoint: str, *, queue_early: bool = False) -> Any:
    """A connecting socket; ZeroMQ (re)connects by itself whenever the peer appears.

    `queue_early` lets messages wait for a first connection; it must be chosen before connecting.
    """
    socket = _open(context, kind)
    socket.setsockopt(zmq.IMMEDIATE, 0 if queue_early else 1)
    socket.setsockopt(zmq.RECONNECT_IVL, 50)  # ms
    socket.setsockopt(zmq.RECONNECT_IVL_MAX, 500)  # ms
    socket.connect(endpoint)
    return socket


def remove(endpoint: str) -> None:
    """Deletes an ipc endpoint's file, which ZeroMQ leaves behind. For who bound it, at its end."""
    if endpoint.startswith("ipc://"):
        Path(endpoint.removeprefix("ipc://")).unlink(missing_ok=True)


def _open(context: Any, kind: int) -> Any:
    socket = context.socket(kind)
    socket.setsockopt(zmq.SNDHWM, QUEUE_MESSAGES)
    socket.setsockopt(zmq.RCVHWM, QUEUE_MESSAGES)
    socket.setsockopt(zmq.LINGER, 0)
    return socket
