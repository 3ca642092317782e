"""The HTTP side: routing, errors, models and health."""

import json
import re
import time
import uuid
from collections.abc import Awaitable, Callable

import structlog
from aiohttp import web

from services.gateway.chat import REQUEST_ID, ChatService
from services.gateway.chat_reply import error_body
from services.gateway.security import Guard
from shared.errors import BadParameter, EngineFault, ModelNotFound, NinferError, NotFound

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

RETRY_AFTER_S = "1"
PREFLIGHT_HEADERS = {
    "Access-Control-Allow-Methods": "GET, POST",
    "Access-Control-Allow-Headers": "authorization, content-type, x-api-key",
    "Access-Control-Max-Age": "600",
}


class App:
    """Routes by a normalised path, so that base URLs with, without or with doubled /v1 all work."""

    def __init__(self, chat: ChatService) -> None:
        self._chat = chat
        self._model_id = chat.planner.model_id
        self._guard = Guard(chat.config)
        self._log = structlog.get_logger(service="gateway")
        self._started = int(time.time())
        self._routes: dict[str, dict[str, Handler]] = {
            "/health": {"GET": self._health},
            "/models": {"GET": self._models},
            "/chat/completions": {"POST": chat.handle},
        }

    def build(self) -> web.Application:
        application = web.Application(client_max_size=self._chat.config.max_body_mib << 20)
        application.router.add_route(
            "*", "/{tail:.*}", self._dispatch, expect_handler=self._answer_expectation
        )
        application.on_response_prepare.append(self._add_headers)
        return application

    async def _dispatch(self, http: web.Request) -> web.StreamResponse:
        http[REQUEST_ID] = uuid.uuid4().hex
        try:
            return await self._route(http)
        except NinferError as error:
            return _refusal(error)
        except Exception:  # noqa: BLE001 whatever went wrong, the client gets JSON
            self._log.exception("request_failed", request_id=http[REQUEST_ID])
            return _refusal(EngineFault("internal error"))

    async def _answer_expectation(self, http: web.Request) -> None:
        if http.headers.get("Expect", "").lower() == "100-continue":
            if http.transport is not None:
                http.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            return
        body = error_body(BadParameter("only Expect: 100-continue is served"))
        raise web.HTTPExpectationFailed(text=json.dumps(body), content_type="application/json")

    async def _route(self, http: web.Request) -> web.StreamResponse:
        path = normalise(http.path)
        self._guard.check_source(http)
        if http.method == "OPTIONS" and self._guard.allowed_origin(http) is not None:
            return web.Response(status=204, headers=PREFLIGHT_HEADERS)
        self._guard.check_key(http, path)
        methods = {"GET": self._model} if path.startswith("/models/") else self._routes.get(path)
        if methods is None:
            raise NotFound(f"{http.path} is not served")
        handler = methods.get("GET" if http.method == "HEAD" else http.method)
        if handler is None:
            allowed = ", ".join(sorted(methods))
            body = error_body(NotFound(f"{http.method} is not served here; use {allowed}"))
            body["error"]["code"] = "method_not_allowed"
            return web.json_response(body, status=405, headers={"Allow": allowed})
        return await handler(http)

    async def _add_headers(self, http: web.Request, response: web.StreamResponse) -> None:
        # absent where aiohttp refused before the handler
        response.headers["x-request-id"] = http.get(REQUEST_ID) or uuid.uuid4().hex
        origin = self._guard.allowed_origin(http)
        if origin is not None:
            response.headers["Access-Control-Allow-Origin"] = origin
            response.headers["Vary"] = "Origin"

    async def _health(self, _: web.Request) -> web.StreamResponse:
        link = self._chat.link
        services = {
            "gateway": "ok",
            "engine": "ok" if link.ready else "unavailable",
            "indexer": "ok" if self._chat.indexer.is_there else "unavailable",
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
        if engine := self._chat.link.ready:
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


def _refusal(error: NinferError) -> web.Response:
    headers = {"Retry-After": RETRY_AFTER_S} if error.status in (429, 503) else {}
    return web.json_response(error_body(error), status=error.status, headers=headers)
