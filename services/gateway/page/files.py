"""`GET /`: the page itself. No text of any request is in it, so it is served without a key."""

import hashlib
from pathlib import Path

from aiohttp import web

from shared.errors import NotFound

# path -> (file, content type)
FILES = {
    "/": ("page.html", "text/html"),
    "/ninfer/page.css": ("page.css", "text/css"),
    "/ninfer/page.js": ("page.js", "text/javascript"),
    "/ninfer/view.js": ("view.js", "text/javascript"),
}
# Nothing from elsewhere, no inline code, and no other page around it.
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "connect-src 'self'; img-src 'self' data:; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-cache",
}


class PageFiles:
    def __init__(self, *, enabled: bool) -> None:
        folder = Path(__file__).parent / "assets"
        self._enabled = enabled
        self._bodies = {name: (folder / name).read_bytes() for name, _ in FILES.values()}

    async def show(self, http: web.Request, path: str) -> web.StreamResponse:
        """Raises NotFound: the page is off."""
        if not self._enabled:
            raise NotFound("the page is off; see --page-requests")
        name, content_type = FILES[path]
        body = self._bodies[name]
        tag = hashlib.sha256(body).hexdigest()[:16]
        headers = HEADERS | {"ETag": f'"{tag}"'}
        if f'"{tag}"' in http.headers.get("If-None-Match", ""):
            return web.Response(status=304, headers=headers)
        response = web.Response(
            body=body, content_type=content_type, charset="utf-8", headers=headers
        )
        response.enable_compression()
        return response
