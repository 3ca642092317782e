"""The gateway's end of the archive's socket: what it holds, and deletions."""

import asyncio
import itertools
from typing import Any

import structlog
import zmq
import zmq.asyncio

from services.gateway.peer_starts import PeerStarts
from shared import sockets
from shared.errors import ArchiveAbsent
from shared.messages import (
    ArchiveToGateway,
    Deleted,
    DeleteSessions,
    GatewayToArchive,
    ListSessions,
    Sessions,
)
from shared.wire import Codec, WireError

ANSWER_S = 2.0


class ArchiveLink:
    """One question at a time, each with a deadline. No generation ever passes here."""

    def __init__(self, endpoint: str, *, answer_s: float = ANSWER_S) -> None:
        self._answer_s = answer_s
        self._log = structlog.get_logger(service="gateway")
        self._tickets = itertools.count(1)
        self._lock = asyncio.Lock()
        self._out: Codec[GatewayToArchive] = Codec(GatewayToArchive)
        self._in: Codec[ArchiveToGateway] = Codec(ArchiveToGateway)
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        asynchronous = zmq.asyncio.Context(self._context)
        self._socket = sockets.connect(asynchronous, zmq.DEALER, endpoint)
        self.starts = PeerStarts(self._context, self._socket)

    @property
    def is_there(self) -> bool:
        """Connected, and its queue has room."""
        return bool(self._socket.getsockopt(zmq.EVENTS) & zmq.POLLOUT)

    async def sessions(self) -> Sessions:
        """Raises ArchiveAbsent."""
        answer = await self._ask(ListSessions(ticket=next(self._tickets)))
        assert isinstance(answer, Sessions)
        return answer

    async def delete(self, session_id: str | None) -> int:
        """How many sessions there were; None deletes all. Raises ArchiveAbsent."""
        message = DeleteSessions(ticket=next(self._tickets), session_id=session_id)
        answer = await self._ask(message)
        assert isinstance(answer, Deleted)
        return answer.sessions

    def close(self) -> None:
        self.starts.close()
        self._socket.close()
        self._context.destroy(linger=0)

    async def _ask(self, message: ListSessions | DeleteSessions) -> ArchiveToGateway:
        try:
            async with asyncio.timeout(self._answer_s), self._lock:
                if not self.is_there:
                    raise ArchiveAbsent("the archive is not there; it restarts by itself")
                await self._socket.send_multipart(self._out.encode(message))
                while True:
                    answer = self._decoded(await self._socket.recv_multipart())
                    if answer is not None and answer.ticket == message.ticket:
                        return answer
        except TimeoutError as exc:
            raise ArchiveAbsent("the archive did not answer in time") from exc

    def _decoded(self, frames: list[Any]) -> ArchiveToGateway | None:
        try:
            return self._in.decode(frames)
        except WireError as exc:
            self._log.warning("garbage", channel="sessions", error=str(exc))
            return None
