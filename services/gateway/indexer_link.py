"""The gateway's end of the indexer's socket. The indexer is an accelerator: it may be absent."""

import structlog
import zmq

from services.gateway.peer_starts import PeerStarts
from shared import sockets
from shared.messages import BuildIndex, DropIndex, GatewayToIndexer
from shared.wire import Codec


class IndexerLink:
    """Never waits and never fails a request: without an index there are only fewer copies."""

    def __init__(self, endpoint: str) -> None:
        self._log = structlog.get_logger(service="gateway")
        self._codec: Codec[GatewayToIndexer] = Codec(GatewayToIndexer)
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._socket = sockets.connect(self._context, zmq.PUSH, endpoint)
        self.starts = PeerStarts(self._context, self._socket)
        self.lost = 0  # requests that went without an index

    @property
    def is_there(self) -> bool:
        """Connected, and its queue has room."""
        return bool(self._socket.getsockopt(zmq.EVENTS) & zmq.POLLOUT)

    def build(self, message: BuildIndex) -> None:
        if not self._try(message):
            self.log_absence(message.request_id)

    def drop(self, request_id: str) -> None:
        self._try(DropIndex(request_id=request_id))

    def log_absence(self, request_id: str) -> None:
        self.lost += 1
        self._log.warning("indexer_absent", request_id=request_id)

    def close(self) -> None:
        self.starts.close()
        self._context.destroy(linger=0)

    def _try(self, message: GatewayToIndexer) -> bool:
        try:
            self._socket.send_multipart(self._codec.encode(message), zmq.NOBLOCK)
        except zmq.Again:
            return False
        return True
