"""What the last requests drafted, and why: `GET /v1/ninfer/requests` and `.../requests/ID`."""

import time
from collections import OrderedDict
from typing import Any

import msgspec
from aiohttp import web

from services.gateway.acceptance import acceptance
from shared.errors import NotFound
from shared.messages import DraftRecord, DraftSpan, GenerationStats

FEWEST_CHARACTERS = 8  # of an id's end


class DraftRecords:
    """Counts and positions, never text; the oldest makes room for the newest."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self._kept: OrderedDict[str, dict[str, Any]] = OrderedDict()

    def keep(self, request_id: str, stats: GenerationStats, record: DraftRecord | None) -> None:
        if record is None or not self.capacity:
            return
        self._kept[request_id] = {
            "id": request_id,
            "object": "ninfer.request",
            "created": int(time.time()),
            "prompt_tokens": stats.prompt_tokens,
            "output_tokens": stats.output_tokens,
            "decode_passes": stats.decode_passes,
            "speculative": acceptance(stats.speculative),
            "drafts": as_json(record),
        }
        while len(self._kept) > self.capacity:
            self._kept.popitem(last=False)

    async def list(self, _: web.Request) -> web.StreamResponse:
        """The newest first, without their spans."""
        shown = [
            {name: value for name, value in kept.items() if name != "drafts"}
            for kept in reversed(self._kept.values())
        ]
        return web.json_response({"object": "list", "data": shown})

    async def show(self, _: web.Request, request_id: str) -> web.StreamResponse:
        """Raises NotFound."""
        kept = self._kept.get(request_id) or self._by_end(request_id)
        if kept is None:
            raise NotFound(
                f"no record of request '{request_id}'; the last {self.capacity} that ended are kept"
            )
        return web.json_response(kept)

    def _by_end(self, text: str) -> dict[str, Any] | None:
        """The one whose id ends so, as `ninfer-log tail` shows it."""
        if len(text) < FEWEST_CHARACTERS:
            return None
        found = [kept for name, kept in self._kept.items() if name.endswith(text)]
        return found[0] if len(found) == 1 else None


def as_json(record: DraftRecord) -> dict[str, Any]:
    return {"spans": [_span(span) for span in record.spans], "dropped": record.dropped}


def _span(span: DraftSpan) -> dict[str, Any]:
    fields: dict[str, Any] = msgspec.to_builtins(span)
    fields.pop("type")
    return fields
