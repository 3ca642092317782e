"""The HTTP side: guard, errors, headers and health."""

import json
import uuid
from typing import Any

import structlog
from aiohttp import web

from services.gateway.connections import Connection, is_plainly_framed
from services.gateway.health import services_up
from services.gateway.models import is_anthropic
from services.gateway.protocols.openai_errors import error_body
from services.gateway.request_log import describe_error
from services.gateway.routes import Handler, Routes, normalise
from services.gateway.security import Guard
from services.gateway.service import CLIENT_CHARACTERS, ID_PREFIX, REQUEST_ID, GenerationService
from shared.errors import (
    BadParameter,
    EngineFault,
    MethodNotAllowed,
    NinferError,
    NotFound,
)

RETRY_AFTER_S = "1"
CLOSING = (408, 413)  # the rest of their body is not wanted
LOGGED_CHARACTERS = 100  # of a path or method that nobody serves
PREFLIGHT_HEADERS = {
    "Access-Control-Allow-Methods": "GET, POST, DELETE",
    "Access-Control-Max-Age": "600",
}
# What a browser may send if its preflight does not say.
USUAL_HEADERS = "authorization, content-type, x-api-key, anthropic-version"
EXPOSED_HEADERS = "x-request-id, request-id, retry-after, x-ninfer-draft-generation"

ROUTES = web.AppKey("routes", Routes)


class App:
    """Guards, routes by a normalised path, and gives every error its protocol's shape."""

    def __init__(self, service: GenerationService) -> None:
        self._service = service
        self._guard = Guard(service.config)
        self._log = structlog.get_logger(service="gateway")
        self._routes = Routes(service)
        self._routes.add("/health", "GET", self._health)

    def build(self) -> web.Application:
        application = web.Application(
            client_max_size=self._service.config.max_body_mib << 20, middlewares=[_without_path]
        )
        application.router.add_route(
            "*", r"/{tail:[\s\S]*}", self._dispatch, expect_handler=self._answer_expectation
        )
        application[ROUTES] = self._routes
        application.on_response_prepare.append(self._add_headers)
        return application

    async def _dispatch(self, http: web.Request) -> web.StreamResponse:
        http[REQUEST_ID] = f"{ID_PREFIX}{uuid.uuid4().hex}"
        if isinstance(http.protocol, Connection):
            http.protocol.request_came()
        try:
            return await self._route(http)
        except NinferError as error:
            return self._refusal(http, error)
        except Exception:  # noqa: BLE001 whatever went wrong, the client gets JSON
            self._log.exception("request_failed", request_id=http[REQUEST_ID])
            return self._refusal(http, EngineFault("internal error"))

    async def _answer_expectation(self, http: web.Request) -> None:
        if http.headers.get("Expect", "").lower() == "100-continue":
            if http.transport is not None:
                http.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            return
        body = error_body(BadParameter("only Expect: 100-continue is served"))
        raise web.HTTPExpectationFailed(text=json.dumps(body), content_type="application/json")

    async def _route(self, http: web.Request) -> web.StreamResponse:
        try:
            if not is_plainly_framed(http):
                raise BadParameter("only the transfer coding chunked is served")
            self._guard.check_source(http)
            if http.method == "OPTIONS" and self._guard.allowed_origin(http) is not None:
                return web.Response(status=204, headers=_preflight(http))
            path = normalise(http.path)
            self._guard.check_key(http, path)
            handler = self._routes.find(http.method, path)
        except NinferError as error:
            self._service.log.request_error(self._describe(http), "guard", describe_error(error))
            raise
        return await handler(http)

    def _describe(self, http: web.Request) -> dict[str, Any]:
        """For the log, of a call that reached no protocol."""
        return {
            "request_id": http[REQUEST_ID],
            "protocol": None,
            "client": http.headers.get("User-Agent", "")[:CLIENT_CHARACTERS],
            "method": http.method[:LOGGED_CHARACTERS],
            "path": http.path[:LOGGED_CHARACTERS],
        }

    def _refusal(self, http: web.Request, error: NinferError) -> web.Response:
        headers = {"Retry-After": RETRY_AFTER_S} if error.status in (429, 503) else {}
        if isinstance(error, MethodNotAllowed):
            headers["Allow"] = error.allowed
        body = self._error_body(http, error)
        response = web.json_response(body, status=error.status, headers=headers)
        if error.status in CLOSING or not is_plainly_framed(http):
            response.force_close()  # what goes on arriving is no next request
        return response

    def _error_body(self, http: web.Request, error: NinferError) -> dict[str, Any]:
        """In the shape of the protocol that was called, or of the client's usual one."""
        path = normalise(http.path)
        if is_anthropic(http) or path.startswith("/messages/"):
            path = "/messages"
        protocol = self._routes.protocols.get(path)
        shape = protocol.error if protocol else error_body
        return shape(error, http[REQUEST_ID])

    async def _add_headers(self, http: web.Request, response: web.StreamResponse) -> None:
        # absent where aiohttp refused before the handler
        request_id = http.get(REQUEST_ID) or f"{ID_PREFIX}{uuid.uuid4().hex}"
        response.headers["x-request-id"] = request_id
        response.headers["request-id"] = request_id  # Anthropic's name for it
        origin = self._guard.allowed_origin(http)
        if origin is not None:
            response.headers["Access-Control-Allow-Origin"] = origin
            response.headers["Access-Control-Expose-Headers"] = EXPOSED_HEADERS
            response.headers["Vary"] = "Origin"

    async def _health(self, _: web.Request) -> web.StreamResponse:
        link = self._service.link
        up = services_up(link, self._service.indexer, self._service.archive)
        services = {name: "ok" if is_up else "unavailable" for name, is_up in up.items()}
        if link.ready is None:
            body = {"status": "unavailable", "services": services}
            return web.json_response(body, status=503, headers={"Retry-After": RETRY_AFTER_S})
        running = link.status.running if link.status else 0
        waiting = link.status.waiting if link.status else 0
        return web.json_response(
            {"status": "ok", "services": services, "running": running, "waiting": waiting}
        )


@web.middleware
async def _without_path(request: web.Request, handler: Handler) -> web.StreamResponse:
    """`OPTIONS *` and the like reach no route; what they get is JSON too."""
    if request.path.startswith("/"):
        return await handler(request)
    return web.json_response(error_body(NotFound("there is no such path")), status=404)


def _preflight(http: web.Request) -> dict[str, str]:
    """An allowed origin may send any header: the official SDKs send a dozen of their own."""
    asked = http.headers.get("Access-Control-Request-Headers", USUAL_HEADERS)
    return {**PREFLIGHT_HEADERS, "Access-Control-Allow-Headers": asked}
