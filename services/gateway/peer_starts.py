"""How often a process at the other end of a socket has started."""

from typing import Any

import zmq
from zmq.utils.monitor import parse_monitor_message


class PeerStarts:
    """Counts the handshakes of a connecting socket: its peer starts anew for each but the first."""

    def __init__(self, context: "zmq.Context[zmq.Socket[bytes]]", socket: Any) -> None:
        self._socket = socket
        address = f"inproc://starts-{id(self)}"
        socket.monitor(address, zmq.EVENT_HANDSHAKE_SUCCEEDED)
        self._events: Any = context.socket(zmq.PAIR)
        self._events.connect(address)
        self._count = 0

    def count(self) -> int:
        """Until now; never waits."""
        while self._events.getsockopt(zmq.EVENTS) & zmq.POLLIN:
            event = parse_monitor_message(self._events.recv_multipart(zmq.NOBLOCK))
            if event["event"] == zmq.EVENT_HANDSHAKE_SUCCEEDED:
                self._count += 1
        return self._count

    def close(self) -> None:
        self._socket.monitor(None, 0)
        self._events.close()
