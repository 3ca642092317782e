"""`/v1/responses/{id}` and below: what clients ask about responses that they stored."""

from aiohttp import web

from services.gateway.protocols.responses_listing import listed
from services.gateway.protocols.responses_store import ResponseStore, StoredResponse
from shared.errors import BadParameter, NotFound

MOST_LISTED = 100


class StoredResponses:
    def __init__(self, store: ResponseStore) -> None:
        self._store = store

    async def show(self, http: web.Request, response_id: str) -> web.StreamResponse:
        if http.query.get("stream") == "true":
            raise BadParameter("a stored response cannot be streamed again", param="stream")
        return web.json_response(self._find(response_id).response)

    async def delete(self, http: web.Request, response_id: str) -> web.StreamResponse:
        self._find(response_id)
        self._store.delete(response_id)
        fields = {"id": response_id, "object": "response", "deleted": True}
        return web.json_response(fields)

    async def input_items(self, http: web.Request, response_id: str) -> web.StreamResponse:
        """One page, newest first unless asked otherwise."""
        items = list(self._find(response_id).input_items)
        order = http.query.get("order", "desc")
        if order not in ("asc", "desc"):
            raise BadParameter("order takes asc or desc", param="order")
        if order == "desc":
            items.reverse()
        after = http.query.get("after")
        if after is not None:
            places = [index for index, item in enumerate(items) if item["id"] == after]
            if not places:
                raise BadParameter("after names no item of this response", param="after")
            items = items[places[0] + 1 :]
        limit = _limit(http.query.get("limit", "20"))
        page = [listed(item) for item in items[:limit]]
        return web.json_response(
            {
                "object": "list",
                "data": page,
                "first_id": page[0]["id"] if page else None,
                "last_id": page[-1]["id"] if page else None,
                "has_more": len(items) > limit,
            }
        )

    async def cancel(self, http: web.Request, response_id: str) -> web.StreamResponse:
        self._find(response_id)
        raise BadParameter("only background responses can be cancelled, and none are served")

    def _find(self, response_id: str) -> StoredResponse:
        found = self._store.get(response_id)
        if found is None:
            raise NotFound(f"Response with id '{response_id}' not found.")
        return found


def _limit(given: str) -> int:
    if not given.isascii() or not given.isdecimal() or not 1 <= int(given) <= MOST_LISTED:
        raise BadParameter(f"limit takes 1 to {MOST_LISTED}", param="limit")
    return int(given)
