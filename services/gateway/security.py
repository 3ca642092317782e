"""Who may call: the checks before any work (DNS rebinding, cross-origin pages, the key)."""

import hmac
from urllib.parse import urlsplit

from aiohttp import web

from services.gateway.config import GatewayConfig
from shared.errors import Forbidden, Unauthorized

OPEN_PATHS = ("/health",)


class Guard:
    def __init__(self, config: GatewayConfig) -> None:
        own = {"localhost", "127.0.0.1", "::1", config.host.lower()}
        self._hosts = own | {
            h.strip().lower() for h in config.allowed_hosts.split(",") if h.strip()
        }
        self._origins = {o.strip() for o in config.allowed_origins.split(",") if o.strip()}
        self._key = config.api_key

    def check(self, http: web.Request, path: str) -> None:
        """Raises Forbidden or Unauthorized."""
        hosts = http.headers.getall("Host", [])
        if len(hosts) != 1 or _host_name(hosts[0]) not in self._hosts:
            raise Forbidden("this Host is not served; see --allowed-hosts")
        origin = http.headers.get("Origin")
        if origin is not None and origin not in self._origins:
            raise Forbidden("this Origin may not call; see --allowed-origins")
        if self._key and path not in OPEN_PATHS and not self._has_key(http):
            raise Unauthorized("a valid API key is required")

    def _has_key(self, http: web.Request) -> bool:
        assert self._key is not None
        given = http.headers.get("x-api-key", "")
        scheme, _, bearer = http.headers.get("Authorization", "").partition(" ")
        if scheme.lower() == "bearer":
            given = bearer.strip()
        return hmac.compare_digest(given.encode(), self._key.encode())


def _host_name(host: str) -> str:
    try:
        name = urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""
    return name.lower().rstrip(".")
