"""The archive's loop over real sockets, driven turn by turn; then as a process."""

import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zmq

from services.archive.loop import ArchiveLoop
from shared import endpoints, sockets
from shared.messages import (
    ArchiveToEngine,
    ArchiveToGateway,
    Attach,
    Attached,
    Bind,
    Bound,
    Deleted,
    DeleteSessions,
    EngineToArchive,
    Forget,
    GatewayToArchive,
    ListSessions,
    Publish,
    Published,
    Ready,
    Release,
    Revoked,
    Sessions,
)
from shared.wire import Codec
from tests.archive.making import make_archive, text

KEY = b"explicit:k"
WAIT_S = 10.0


@dataclass
class Peers:
    """An engine's and a gateway's ends."""

    engine: Any
    gateway: Any
    turn: Callable[[], None]
    heard: list[Any] = field(default_factory=list)

    def to_archive(self, *messages: EngineToArchive) -> None:
        for message in messages:
            self.engine.send_multipart(Codec(EngineToArchive).encode(message))

    def ask(self, message: GatewayToArchive) -> Any:
        self.gateway.send_multipart(Codec(GatewayToArchive).encode(message))
        return self._receive(self.gateway, ArchiveToGateway)

    def hear(self) -> Any:
        return self._receive(self.engine, ArchiveToEngine)

    def _receive(self, socket: Any, union: Any) -> Any:
        end_s = time.monotonic() + WAIT_S
        while not socket.poll(5):
            self.turn()
            assert time.monotonic() < end_s, "no answer"
        return Codec(union).decode(socket.recv_multipart())

    def request(self, binding: str, tokens: np.ndarray, key: bytes = KEY) -> Bound:
        """Binds and publishes `tokens` as tool text."""
        self.to_archive(bind(binding, key))
        bound = self.hear()
        assert isinstance(bound, Bound)
        parts = np.array([0, len(tokens), 3], np.int32)
        self.to_archive(Publish(binding=binding, tokens=tokens, parts=parts))
        assert isinstance(self.hear(), Published)
        return bound


def bind(binding: str, key: bytes = KEY, *, reset: bool = False) -> Bind:
    known = np.empty(0, np.uint64)
    return Bind(engine_id="e", binding=binding, key=key, fork=None, reset=reset, known=known)


def attach(*bindings: str, engine_id: str = "e", floor: int = 0) -> Attach:
    return Attach(engine_id=engine_id, generation_floor=floor, bindings=bindings)


@pytest.fixture
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="ninfer-") as name:
        yield Path(name)


@pytest.fixture
def peers(folder: Path) -> Iterator[Peers]:
    channels = endpoints.in_directory(folder)
    archive = make_archive()
    loop = ArchiveLoop(channels, archive)
    context: Any = zmq.Context()

    def turn() -> None:
        loop.turn(5)
        archive.check()

    made = Peers(
        sockets.connect(context, zmq.DEALER, channels.bind, queue_early=True),
        sockets.connect(context, zmq.DEALER, channels.sessions, queue_early=True),
        turn,
    )
    made.to_archive(attach())
    assert isinstance(made.hear(), Attached)
    yield made
    context.destroy(linger=0)
    loop.close()
    assert list(folder.iterdir()) == []


def test_spans_travel_and_are_unpinned_afterwards(peers: Peers) -> None:
    """Large ones go without a copy, so they are pinned until they are out."""
    tokens = text(1, 40_000)
    peers.request("r1", tokens)
    bound = peers.request("r2", text(2, 50))
    assert sum(len(span) for span in bound.spans) == 40_000 + 2 * 256
    peers.ask(DeleteSessions(ticket=1, session_id=None))
    end_s = time.monotonic() + WAIT_S
    while peers.ask(ListSessions(ticket=2)).total_bytes > 70_000:
        assert time.monotonic() < end_s, "deleted spans are still pinned"


def test_a_deletion_revokes_the_owner(peers: Peers) -> None:
    peers.to_archive(bind("r"))
    assert isinstance(peers.hear(), Bound)
    assert peers.ask(DeleteSessions(ticket=3, session_id=None)) == Deleted(ticket=3, sessions=1)
    assert peers.hear() == Revoked(binding="r")
    assert peers.hear() == Forget()


def test_garbage_is_skipped(peers: Peers) -> None:
    for frames in ([b""], [b"\xff" * 50], [b"\x81", b"x"], [b"{}"]):
        peers.engine.send_multipart(frames)
        peers.gateway.send_multipart(frames)
    contradiction = np.array([0, 99, 3], np.int32)
    peers.to_archive(bind("r"))
    peers.hear()
    peers.to_archive(Publish(binding="r", tokens=text(1, 5), parts=contradiction))
    peers.to_archive(Release(binding="r"))
    peers.request("r2", text(1))
    assert peers.ask(ListSessions(ticket=4)).sessions[0].generation == 1


def test_a_second_engine_takes_over_and_starts_with_nothing(peers: Peers) -> None:
    peers.request("r", text(1))
    peers.to_archive(attach(engine_id="second", floor=4))
    assert isinstance(peers.hear(), Attached)
    assert peers.ask(ListSessions(ticket=5)).sessions == ()


def test_an_engine_that_reads_nothing_costs_no_binding(peers: Peers) -> None:
    """What cannot be sent is dropped; the binding with it, and the archive goes on."""
    tokens = text(1, 60_000)
    peers.request("first", tokens)
    for number in range(400):
        peers.to_archive(bind(f"r{number}", reset=False), Release(binding=f"r{number}"))
    end_s = time.monotonic() + WAIT_S
    while peers.ask(ListSessions(ticket=6)).sessions[0].bound:
        peers.turn()
        assert time.monotonic() < end_s, "a binding stayed behind"


@pytest.mark.e2e
def test_it_runs_as_a_process_and_ends_cleanly(folder: Path) -> None:
    context: Any = zmq.Context()
    channels = endpoints.in_directory(folder)
    supervisor = sockets.bind(context, zmq.PULL, channels.supervisor)
    argv = [sys.executable, "-m", "services.archive", f"--sockets={folder}"]
    process = subprocess.Popen([*argv, "--ngram-archive-mib=8"], stderr=subprocess.DEVNULL)
    assert supervisor.poll(30_000)
    ready = Codec(Ready).decode(supervisor.recv_multipart())
    assert (ready.service, ready.facts) == ("archive", {"archive_mib": "8", "session_mib": "8"})
    engine = sockets.connect(context, zmq.DEALER, channels.bind, queue_early=True)
    gateway = sockets.connect(context, zmq.DEALER, channels.sessions, queue_early=True)
    peers = Peers(engine, gateway, lambda: None)
    peers.to_archive(attach())
    assert isinstance(peers.hear(), Attached)
    peers.request("r", text(1))
    assert isinstance(peers.ask(ListSessions(ticket=1)), Sessions)
    process.send_signal(signal.SIGTERM)
    assert process.wait(20) == 0
    context.destroy(linger=0)
    assert not (folder / "bind.sock").exists()
    assert subprocess.run(argv, capture_output=True, timeout=30, check=False).returncode == 2
