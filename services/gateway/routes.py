"""Which path is answered by what. Base URLs with, without and with doubled /v1 all work."""

import re
from collections.abc import Awaitable, Callable
from functools import partial

from aiohttp import web

from services.gateway.models import Models
from services.gateway.openapi import document
from services.gateway.page.files import FILES as PAGE_FILES
from services.gateway.page.files import PageFiles
from services.gateway.page.live import LiveFeed
from services.gateway.protocols.chat import Chat
from services.gateway.protocols.completions import Completions
from services.gateway.protocols.messages import Messages
from services.gateway.protocols.protocol import ProtocolHandler
from services.gateway.protocols.responses import Responses
from services.gateway.protocols.responses_store import ResponseStore
from services.gateway.service import GenerationService
from services.gateway.session_list import SessionList
from services.gateway.stored_responses import StoredResponses
from services.gateway.tokens import Tokens
from shared.errors import BadParameter, MethodNotAllowed, NotFound

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
NamedHandler = Callable[[web.Request, str], Awaitable[web.StreamResponse]]


class Routes:
    def __init__(self, service: GenerationService) -> None:
        self._service = service
        store = ResponseStore(service.config.stored_responses_mib << 20)
        models = Models(service.planner.model_id, service.link)
        tokens = Tokens(service)
        responses = StoredResponses(store)
        self.protocols: dict[str, ProtocolHandler] = {
            "/chat/completions": Chat(),
            "/responses": Responses(store),
            "/messages": Messages(),
            "/completions": Completions(),
        }
        sessions = SessionList(service.archive)
        page = PageFiles(enabled=service.config.page_requests > 0)
        live = LiveFeed(
            service.recent,
            tokenizer=service.tokenizer,
            link=service.link,
            indexer=service.indexer,
            archive=service.archive,
            admission=service.admission,
            model_id=service.planner.model_id,
        )
        self._table: dict[str, dict[str, Handler]] = {
            "/models": {"GET": models.list},
            "/ninfer/requests": {"GET": service.drafts.list},
            "/ninfer/sessions": {"GET": sessions.list, "DELETE": sessions.delete_all},
            "/ninfer/live": {"GET": live.stream},
            "/metrics": {"GET": service.metrics.show},
            "/tokenize": {"POST": tokens.tokenize},
            "/detokenize": {"POST": tokens.detokenize},
            "/openapi.json": {"GET": self._openapi},
            "/responses/compact": {"POST": _refuse_compact},
        }
        for path in PAGE_FILES:
            self._table[path] = {"GET": partial(page.show, path=path)}
        for path, protocol in self.protocols.items():
            self._table[path] = {"POST": self._generate(protocol)}
        counters = {"/messages/count_tokens": {}, "/responses/input_tokens": INPUT_TOKENS}
        for path, envelope in counters.items():
            protocol = self.protocols[path.rpartition("/")[0]]
            self._table[path] = {"POST": _count(tokens, protocol, envelope)}
        named: dict[str, dict[str, NamedHandler]] = {
            "/models/{model}": {"GET": models.show},
            "/ninfer/requests/{id}": {"GET": service.drafts.show},
            "/ninfer/requests/{id}/text": {"GET": live.text},
            "/ninfer/sessions/{id}": {"DELETE": sessions.delete},
            "/responses/{id}/input_items": {"GET": responses.input_items},
            "/responses/{id}/cancel": {"POST": responses.cancel},
            "/responses/{id}": {"GET": responses.show, "DELETE": responses.delete},
        }
        self._named = [(path, _pattern(path), methods) for path, methods in named.items()]

    def add(self, path: str, method: str, handler: Handler) -> None:
        self._table.setdefault(path, {})[method] = handler

    def operations(self) -> set[tuple[str, str]]:
        """Method and path of all that is served; {...} stands for a name."""
        found = {(method, path) for path, methods in self._table.items() for method in methods}
        return found | {(method, path) for path, _, methods in self._named for method in methods}

    def find(self, method: str, path: str) -> Handler:
        """Raises NotFound, MethodNotAllowed."""
        methods = self._table.get(path) or self._find_named(path)
        if methods is None:
            raise NotFound(f"'{path}' is not served; GET /openapi.json lists what is")
        handler = methods.get("GET" if method == "HEAD" else method)
        if handler is None:
            allowed = ", ".join(sorted(methods))
            raise MethodNotAllowed(f"{method} is not served here; use {allowed}", allowed)
        return handler

    def _find_named(self, path: str) -> dict[str, Handler] | None:
        for _, pattern, methods in self._named:
            found = pattern.fullmatch(path)
            if found is not None:
                name = found[1]
                return {method: _with_name(handler, name) for method, handler in methods.items()}
        return None

    def _generate(self, protocol: ProtocolHandler) -> Handler:
        return lambda http: self._service.handle(http, protocol)

    async def _openapi(self, _: web.Request) -> web.StreamResponse:
        return web.json_response(document())


INPUT_TOKENS = {"object": "response.input_tokens"}


def normalise(path: str) -> str:
    """`//v1/v1/models/` is `/models`."""
    path = re.sub(r"/{2,}", "/", path)
    path = re.sub(r"^(/v1)+(?=/|$)", "", path)
    return path.rstrip("/") or "/"


def _pattern(path: str) -> re.Pattern[str]:
    """A model's name may hold slashes, no other."""
    pattern = path.replace("{model}", "(.+)").replace("{id}", "([^/]+)")
    return re.compile(pattern, re.DOTALL)


def _with_name(handler: NamedHandler, name: str) -> Handler:
    return lambda http: handler(http, name)


def _count(tokens: Tokens, protocol: ProtocolHandler, envelope: dict[str, str]) -> Handler:
    async def handle(http: web.Request) -> web.StreamResponse:
        return web.json_response({**envelope, **await tokens.count(http, protocol)})

    return handle


async def _refuse_compact(_: web.Request) -> web.StreamResponse:
    raise BadParameter("responses are not compacted here; the client can do it with a request")
