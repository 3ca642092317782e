"""`GET` and `DELETE /v1/ninfer/sessions`: what the archive holds, without any text of it."""

from typing import Any

from aiohttp import web

from services.gateway.archive_link import ArchiveLink
from shared.errors import NotFound
from shared.messages import SessionFacts


class SessionList:
    """`archive` is None when it is off."""

    def __init__(self, archive: ArchiveLink | None) -> None:
        self._archive = archive

    async def list(self, _: web.Request) -> web.Response:
        found = await self._link().sessions()
        body = {
            "object": "list",
            "data": [_shown(facts) for facts in reversed(found.sessions)],
            "total_bytes": found.total_bytes,
            "capacity_bytes": found.capacity_bytes,
            "evicted_spans": found.evicted_spans,
        }
        return web.json_response(body)

    async def delete_all(self, _: web.Request) -> web.Response:
        return web.json_response({"deleted": await self._link().delete(None)})

    async def delete(self, _: web.Request, session_id: str) -> web.Response:
        deleted = await self._link().delete(session_id)
        if not deleted:
            raise NotFound(f"there is no session {session_id}")
        return web.json_response({"deleted": deleted})

    def _link(self) -> ArchiveLink:
        if self._archive is None:
            raise NotFound("sessions are not retained; start the server with --ngram-archive-mib")
        return self._archive


def _shown(facts: SessionFacts) -> dict[str, Any]:
    return {
        "id": facts.session_id,
        "object": "ninfer.session",
        "generation": facts.generation,
        "sources": facts.sources,
        "bytes": facts.session_bytes,
        "bound": facts.bound,
        "last_used": round(facts.last_used_unix_s, 3),
    }
