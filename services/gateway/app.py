"""The HTTP side: routing, errors, models and health."""

import re
import time
from collections.abc import Awaitable, Callable
from urllib.parse import unquote

from aiohttp import web

from services.gateway.chat import ChatService
from services.gateway.chat_reply import error_body
from services.gateway.security import Guard
from shared.errors import BodyTooLarge, NinferError, NotFound

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

RETRY_AFTER_S = "1"


class App:
    """Routes by a normalised path, so that base URLs with, without or with doubled /v1 all work."""

    def __init__(self, chat: ChatService) -> None:
        self._chat = chat
        self._guard = Guard(chat.config)
        self._started = int(time.time())
        self._routes: dict[str, dict[str, Handler]] = {
            "/health": {"GET": self._health},
            "/models": {"GET": self._models},
            "/chat/completions": {"POST": chat.handle},
        }

    def build(self) -> web.Application:
        application = web.Application(client_max_size=self._chat.config.max_body_mib << 20)
        application.router.add_route("*", "/{tail:.*}", self._dispatch)
        return application

    async def _dispatch(self, http: web.Request) -> web.StreamResponse:
        try:
            return await self._route(http)
        except NinferError as error:
            return _refusal(error)
        except web.HTTPRequestEntityTooLarge:
            limit = self._chat.config.max_body_mib
            return _refusal(BodyTooLarge(f"the body is larger than {limit} MiB"))

    async def _route(self, http: web.Request) -> web.StreamResponse:
        path = normalise(http.path)
        self._guard.check(http, path)
        if path.startswith("/models/") and http.method in ("GET", "HEAD"):
            return self._model(unquote(path.removeprefix("/models/")))
        methods = self._routes.get(path)
        if methods is None:
            raise NotFound(f"{http.path} is not served")
        handler = methods.get("GET" if http.method == "HEAD" else http.method)
        if handler is None:
            allowed = ", ".join(sorted(methods))
            body = error_body(NotFound(f"{http.method} is not served here; use {allowed}"))
            return web.json_response(body, status=405, headers={"Allow": allowed})
        return await handler(http)

    async def _health(self, _: web.Request) -> web.StreamResponse:
        link = self._chat.link
        if link.ready is None:
            body = {"status": "unavailable", "engine": "loading or restarting"}
            return web.json_response(body, status=503, headers={"Retry-After": RETRY_AFTER_S})
        running = link.status.running if link.status else 0
        waiting = link.status.waiting if link.status else 0
        return web.json_response({"status": "ok", "running": running, "waiting": waiting})

    async def _models(self, _: web.Request) -> web.StreamResponse:
        return web.json_response({"object": "list", "data": [self._card()]})

    def _model(self, name: str) -> web.StreamResponse:
        if name != self._chat.model_id:
            raise NotFound(f"The model '{name}' does not exist; see /v1/models", param="model")
        return web.json_response(self._card())

    def _card(self) -> dict[str, object]:
        card: dict[str, object] = {
            "id": self._chat.model_id,
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
