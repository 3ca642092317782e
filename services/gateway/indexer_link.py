"""The gateway's end of the indexer's socket. The indexer is an accelerator: it may be absent."""

import structlog
import zmq
import zmq.asyncio

from shared import sockets
from shared.messages import BuildIndex, DropIndex, GatewayToIndexer
from shared.wire import Codec


class IndexerLink:
    def __init__(self, endpoint: str) -> None:
        self._log = structlog.get_logger(service="gateway")
        self._codec: Codec[GatewayToIndexer] = Codec(GatewayToIndexer)
        self._context = zmq.Context()
        self._socket = sockets.connect(self._context, zmq.PUSH, endpoint)

    async def send(self, message: BuildIndex) -> None:
        """Never waits, never fails the request: without an index there are only fewer copies."""
        if not self._try(message):
            self._log.warning("indexer_absent", request_id=message.request_id)

    def drop(self, request_id: str) -> None:
        self._try(DropIndex(request_id=request_id))

    def close(self) -> None:
        self._context.destroy(linger=0)

    def _try(self, message: GatewayToIndexer) -> bool:
        try:
            self._socket.send_multipart(self._codec.encode(message), zmq.NOBLOCK)
        except zmq.Again:
            return False
        return True
