"""Who may call: the checks before any work (DNS rebinding, cross-origin pages, the key)."""

import hmac
from urllib.parse import urlsplit

from aiohttp import web

from services.gateway.config import GatewayConfig
from services.gateway.page.files import FILES as PAGE_FILES
from shared.errors import Forbidden, Unauthorized

LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
# where to listen, but no name of this server: browsers take 0.0.0.0 for the local machine
EVERY_ADDRESS = frozenset({"0.0.0.0", "::"})
# the page asks for the key itself
OPEN_PATHS = frozenset({"/health", *PAGE_FILES})


class Guard:
    def __init__(self, config: GatewayConfig) -> None:
        own = (LOOPBACK | {config.host.lower()}) - EVERY_ADDRESS
        self._hosts = own | {name.lower().rstrip(".") for name in _items(config.allowed_hosts)}
        self._origins = set(_items(config.allowed_origins))
        self._key = config.api_key

    def check_source(self, http: web.Request) -> None:
        """Raises Forbidden: a Host that is not ours, or a page's Origin that may not call."""
        hosts = http.headers.getall("Host", [])
        if len(hosts) != 1 or _host_name(hosts[0]) not in self._hosts:
            raise Forbidden("this Host is not served; see --allowed-hosts")
        if "Origin" in http.headers and self.allowed_origin(http) is None:
            raise Forbidden("this Origin may not call; see --allowed-origins")

    def check_key(self, http: web.Request, path: str) -> None:
        """Raises Unauthorized."""
        if self._key and path not in OPEN_PATHS and not self._has_key(http):
            raise Unauthorized("a valid API key is required")

    def allowed_origin(self, http: web.Request) -> str | None:
        """The page's origin if it may call: one that is listed, or the server's own."""
        origins = http.headers.getall("Origin", [])
        if len(origins) != 1:
            return None
        may_call = origins[0] in self._origins or self._is_own(origins[0], http)
        return origins[0] if may_call else None

    def _is_own(self, origin: str, http: web.Request) -> bool:
        """Served here and under a name of ours, else a rebound name would be its own origin."""
        hosts = http.headers.getall("Host", [])
        if len(hosts) != 1 or _host_name(hosts[0]) not in self._hosts:
            return False
        return origin == f"http://{hosts[0].lower().removesuffix(':80')}"

    def _has_key(self, http: web.Request) -> bool:
        assert self._key is not None
        given = http.headers.get("x-api-key", "")
        scheme, _, bearer = http.headers.get("Authorization", "").partition(" ")
        if scheme.lower() == "bearer":
            given = bearer.strip()
        # a header may hold bytes that are not UTF-8, which aiohttp passes as surrogates
        return hmac.compare_digest(given.encode(errors="surrogateescape"), self._key.encode())


def _items(listed: str) -> list[str]:
    return [item.strip() for item in listed.split(",") if item.strip()]


def _host_name(host: str) -> str:
    try:
        name = urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""
    return name.lower().rstrip(".")
