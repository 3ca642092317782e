from pathlib import Path

import zmq

from shared import endpoints, lifecycle, sockets
from shared.messages import Ready
from shared.wire import Codec


def channels(tmp_path: Path) -> endpoints.Endpoints:
    folder = tmp_path / "s"
    folder.mkdir(mode=0o700)
    return endpoints.in_directory(folder)


def test_announcing_without_a_supervisor_returns_at_once(tmp_path: Path) -> None:
    lifecycle.announce(channels(tmp_path), "engine", {})  # the test's timeout is the assertion


def test_a_supervisor_hears_who_is_ready(tmp_path: Path) -> None:
    where = channels(tmp_path)
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    inbox = sockets.bind(context, zmq.PULL, where.supervisor)
    lifecycle.announce(where, "engine", {"model": "m"})
    assert inbox.poll(5000)
    ready = Codec(Ready).decode(inbox.recv_multipart())
    assert (ready.service, ready.facts) == ("engine", {"model": "m"})
    context.destroy(linger=0)
