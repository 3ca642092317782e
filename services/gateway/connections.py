"""HTTP connections: how many, how long until their first request, and how bad HTTP is answered."""

import asyncio
import uuid
from typing import Any

from aiohttp import web
from aiohttp.http_exceptions import BadHttpMessage, LineTooLong

from services.gateway.protocols.openai_errors import error_body
from services.gateway.request_log import RequestLog, describe_error
from shared.errors import BadParameter, HeadersTooLarge, NinferError

MAX_LINE_BYTES = 16 << 10  # the request line, and each header: agents send some kilobytes of JSON
MAX_HEADERS = 128
FIRST_HEADERS_S = 10.0
KEEP_ALIVE_S = 75.0
LINGER_S = 2.0  # an answered body may go on arriving, so that its sender gets to read the answer


def is_plainly_framed(http: web.BaseRequest) -> bool:
    """The parser reads any list of codings that ends in chunked, and would take what is inside a
    compressed body for the body itself."""
    codings = [coding.lower() for coding in http.headers.getall("Transfer-Encoding", [])]
    return codings in ([], ["chunked"])


class Connection(web.RequestHandler):
    """One client's connection, as aiohttp serves it, within the server's limits."""

    __slots__ = ("_deadline", "_server")

    def __init__(self, server: "ConnectionServer", **options: Any) -> None:
        super().__init__(server, **options)
        self._server = server
        self._deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        loop = asyncio.get_running_loop()
        if len(self._server.connections) > self._server.max_connections:
            self.force_close()
            return
        self._deadline = loop.call_later(self._server.first_headers_s, self.force_close)

    def connection_lost(self, exc: BaseException | None) -> None:
        self.request_came()
        super().connection_lost(exc)

    def request_came(self) -> None:
        """The headers are there in time: from now on keep-alive's own timeout holds."""
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """What is no HTTP is answered in JSON, without a word of it, and ends the connection."""
        self.request_came()
        error: NinferError = BadParameter("the request is not valid HTTP")
        if isinstance(exc, LineTooLong):
            error = HeadersTooLarge("the request line or a header is too long")
        elif isinstance(exc, BadHttpMessage) and "Too many" in exc.message:
            error = HeadersTooLarge(f"more than {MAX_HEADERS} headers")
        request_id = f"req_{uuid.uuid4().hex}"
        self._server.log.request_error(
            {"request_id": request_id, "protocol": None}, "http", describe_error(error)
        )
        headers = {"x-request-id": request_id, "request-id": request_id}
        response = web.json_response(error_body(error), status=error.status, headers=headers)
        response.force_close()
        return response


class ConnectionServer(web.Server):
    def __init__(
        self, inner: web.Server, log: RequestLog, max_connections: int, **options: Any
    ) -> None:
        super().__init__(inner.request_handler, request_factory=inner.request_factory, **options)
        self._options = {
            k: v for k, v in options.items() if k not in ("handler_cancellation", "loop")
        }
        self.log = log
        self.max_connections = max_connections
        self.first_headers_s = FIRST_HEADERS_S

    def __call__(self) -> Connection:
        return Connection(self, loop=asyncio.get_running_loop(), **self._options)


class ConnectionRunner(web.AppRunner):
    """The same for tests. A handler is cancelled when its client goes, which is not the default."""

    __slots__ = ("_log", "_max_connections")

    def __init__(
        self,
        application: web.Application,
        log: RequestLog,
        max_connections: int,
        last_words_s: float,
    ) -> None:
        super().__init__(application, shutdown_timeout=last_words_s)
        self._log = log
        self._max_connections = max_connections

    async def _make_server(self) -> web.Server:
        inner = await super()._make_server()
        return ConnectionServer(
            inner,
            self._log,
            self._max_connections,
            loop=asyncio.get_running_loop(),
            handler_cancellation=True,
            access_log=None,
            keepalive_timeout=KEEP_ALIVE_S,
            lingering_time=LINGER_S,
            auto_decompress=False,  # compressed bodies are refused, so none may grow in memory
            max_line_size=MAX_LINE_BYTES,
            max_field_size=MAX_LINE_BYTES,
            max_headers=MAX_HEADERS,
        )
