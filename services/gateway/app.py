"""The HTTP side: routing, errors, models and health."""

import json
import re
import time
import uuid
from collections.abc import Awaitable, Callable
from typing import Any

import structlog
from aiohttp import web

from services.gateway.protocols.chat import Chat
from services.gateway.protocols.openai_errors import error_body
from services.gateway.protocols.protocol import ProtocolHandler
from services.gateway.request_log import describe_error
from services.gateway.security import Guard
from services.gateway.service import CLIENT_CHARACTERS, REQUEST_ID, GenerationService
from shared.errors import (
    BadParameter,
    EngineFault,
    MethodNotAllowed,
    ModelNotFound,
    NinferError,
    NotFound,
)

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

RETRY_AFTER_S = "1"
LOGGED_CHARACTERS = 100  # of a path or method that nobody serves
PREFLIGHT_HEADERS = {
    "Access-Control-Allow-Methods": "GET, POST",
    "Access-Control-Allow-Headers": "authorization, content-type, x-api-key",
    "Access-Control-Max-Age": "600",
}


class App:
    """Routes by a normalised path, so that base URLs with, without or with doubled /v1 all work."""

    def __init__(self, service: GenerationService) -> None:
        self._service = service
        self._model_id = service.planner.model_id
        self._guard = Guard(service.config)
        self._log = structlog.get_logger(service="gateway")
        self._started = int(time.time())
        self._routes: dict[str, dict[str, Handler]] = {
            "/health": {"GET": self._health},
            "/models": {"GET": self._models},
            "/chat/completions": {"POST": self._generate(Chat())},
        }

    def build(self) -> web.Application:
        application = web.Application(client_max_size=self._service.config.max_body_mib << 20)
        application.router.add_route(
            "*", "/{tail:.*}", self._dispatch, expect_handler=self._answer_expectation
        )
        application.on_response_prepare.append(self._add_headers)
        return application

    def _generate(self, protocol: ProtocolHandler) -> Handler:
        return lambda http: self._service.handle(http, protocol)

    async def _dispatch(self, http: web.Request) -> web.StreamResponse:
        http[REQUEST_ID] = uuid.uuid4().hex
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
            self._guard.check_source(http)
            if http.method == "OPTIONS" and self._guard.allowed_origin(http) is not None:
                return web.Response(status=204, headers=PREFLIGHT_HEADERS)
            path = normalise(http.path)
            self._guard.check_key(http, path)
            handler = self._handler(http, path)
        except NinferError as error:
            self._service.log.request_error(self._describe(http), "guard", describe_error(error))
            raise
        return await handler(http)

    def _handler(self, http: web.Request, path: str) -> Handler:
        """Raises NotFound, MethodNotAllowed."""
        methods = {"GET": self._model} if path.startswith("/models/") else self._routes.get(path)
        if methods is None:
            raise NotFound(f"{http.path} is not served")
        handler = methods.get("GET" if http.method == "HEAD" else http.method)
        if handler is None:
            allowed = ", ".join(sorted(methods))
            raise MethodNotAllowed(f"{http.method} is not served here; use {allowed}", allowed)
        return handler

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
        body = error_body(error, http[REQUEST_ID])
        return web.json_response(body, status=error.status, headers=headers)

    async def _add_headers(self, http: web.Request, response: web.StreamResponse) -> None:
        # absent where aiohttp refused before the handler
        response.headers["x-request-id"] = http.get(REQUEST_ID) or uuid.uuid4().hex
        origin = self._guard.allowed_origin(http)
        if origin is not None:
            response.headers["Access-Control-Allow-Origin"] = origin
            response.headers["Vary"] = "Origin"

    async def _health(self, _: web.Request) -> web.StreamResponse:
        link = self._service.link
        services = {
            "gateway": "ok",
            "engine": "ok" if link.ready else "unavailable",
            "indexer": "ok" if self._service.indexer.is_there else "unavailable",
        }
        if link.ready is None:
            body = {"status": "unavailable", "services": services}
            return web.json_response(body, status=503, headers={"Retry-After": RETRY_AFTER_S})
        running = link.status.running if link.status else 0
        waiting = link.status.waiting if link.status else 0
        return web.json_response(
            {"status": "ok", "services": services, "running": running, "waiting": waiting}
        )

    async def _models(self, _: web.Request) -> web.StreamResponse:
        return web.json_response({"object": "list", "data": [self._card()]})

    async def _model(self, http: web.Request) -> web.StreamResponse:
        name = normalise(http.path).removeprefix("/models/")
        if name != self._model_id:
            raise ModelNotFound(
                f"The model '{name}' does not exist; this server has '{self._model_id}'",
                param="model",
            )
        return web.json_response(self._card())

    def _card(self) -> dict[str, object]:
        card: dict[str, object] = {
            "id": self._model_id,
            "object": "model",
            "created": self._started,
            "owned_by": "ninfer",
        }
        if engine := self._service.link.ready:
            context = engine.model.max_context
            card |= {"max_model_len": context, "context_length": context}
            card["meta"] = {
                "n_ctx": context,
                "n_params": engine.model.parameters,
                "size": engine.model.weight_bytes,
                "n_vocab": engine.model.vocab_size,
            }
        return card


def normalise(path: str) -> str:
    """`//v1/v1/models/` is `/models`."""
    path = re.sub(r"/{2,}", "/", path)
    path = re.sub(r"^(/v1)+(?=/|$)", "", path)
    return path.rstrip("/") or "/"
