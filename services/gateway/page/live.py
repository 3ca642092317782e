"""`GET /v1/ninfer/live`: what the server does, as an event stream for people's pages.

Every reader has a task of its own that looks at what has changed a few times a second, so a
thousand rounds are one event, and no generation ever waits for a reader.
"""

import asyncio
import time
from typing import Any

import msgspec
from aiohttp import web

from services.gateway.admission import Admission
from services.gateway.archive_link import ArchiveLink
from services.gateway.engine_link import EngineLink
from services.gateway.health import services_up
from services.gateway.indexer_link import IndexerLink
from services.gateway.page.recent import RecentRequest, RecentRequests
from services.gateway.page.request_text import Segment, Snapshot, as_json, by_rounds
from services.gateway.page.token_text import TokenText
from shared.errors import BadParameter, NotFound, Overloaded
from shared.tokenizer import Tokenizer

EVENT_S = 0.25
# without a change only every so often
QUIET_EVENTS = 4
MOST_READERS = 16
SLOW_READER_S = 5.0
HEADERS = {
    "Content-Type": "text/event-stream; charset=utf-8",
    "Cache-Control": "no-cache",
    "X-Accel-Buffering": "no",
}


class LiveFeed:
    def __init__(
        self,
        recent: RecentRequests,
        *,
        tokenizer: Tokenizer,
        link: EngineLink,
        indexer: IndexerLink,
        archive: ArchiveLink | None,
        admission: Admission,
        model_id: str,
    ) -> None:
        self._recent = recent
        self._tokenizer = tokenizer
        self._link = link
        self._indexer = indexer
        self._archive = archive
        self._admission = admission
        self._model_id = model_id
        self._readers = 0

    async def text(self, _: web.Request, request_id: str) -> web.StreamResponse:
        """One request's texts. Raises NotFound."""
        request = self._find(request_id)
        context = self._link.ready.model.max_context if self._link.ready else 0
        # a long prompt takes a while, in which streams must go on
        body = await asyncio.to_thread(as_json, Snapshot.of(request), self._tokenizer, context)
        response = web.json_response(body, dumps=_dumps)
        response.enable_compression()
        return response

    async def stream(self, http: web.Request) -> web.StreamResponse:
        """With `?request=ID&tokens=N` also that request's output behind its first N tokens.

        Raises:
            Overloaded: as many pages are open as may be.
        """
        reader = _Reader(self._tokenizer, *self._chosen(http))
        if self._readers >= MOST_READERS:
            raise Overloaded(f"{MOST_READERS} pages are open; close one")
        self._readers += 1
        response = web.StreamResponse(headers=HEADERS)
        try:
            await response.prepare(http)
            while not self._admission.is_closed:
                event = self._event(reader)
                if event is not None:
                    async with asyncio.timeout(SLOW_READER_S):
                        await response.write(b"data: %b\n\n" % msgspec.json.encode(event))
                await asyncio.sleep(EVENT_S)
            await response.write_eof()
        except (ConnectionError, TimeoutError):
            # gone, or does not read: what it has not read is dropped with the connection
            if http.transport is not None:
                http.transport.abort()
        finally:
            self._readers -= 1
        return response

    def _chosen(self, http: web.Request) -> tuple[RecentRequest | None, int]:
        tokens = http.query.get("tokens", "0")
        if not tokens.isdecimal() or len(tokens) > 9:
            raise BadParameter("tokens is not a number", param="tokens")
        name = http.query.get("request")
        return (self._find(name) if name else None), int(tokens)

    def _find(self, request_id: str) -> RecentRequest:
        request = self._recent.get(request_id)
        if request is None:
            raise NotFound(
                f"no text of request '{request_id}' is kept; see --page-requests, which is "
                f"{self._recent.capacity} here"
            )
        return request

    def _event(self, reader: "_Reader") -> dict[str, Any] | None:
        """What has changed for this reader; None if nothing has, for now."""
        output = reader.output()
        changed = self._recent.since(reader.version)
        reader.quiet += 1
        if not changed and output is None and 1 < reader.quiet < QUIET_EVENTS:
            return None
        reader.quiet = 1
        reader.version = self._recent.version
        return {
            **self._state(),
            "oldest": self._recent.oldest,
            "requests": [request.summary() for request in changed],
            **({"output": output} if output is not None else {}),
        }

    def _state(self) -> dict[str, Any]:
        link, status = self._link, self._link.status
        ready = link.ready
        return {
            "at": round(time.time(), 3),
            "model": self._model_id,
            "services": services_up(link, self._indexer, self._archive),
            "open": self._admission.open,
            "rows": ready.limits.max_concurrency if ready else 0,
            "copies": ready.limits.ngram_draft_tokens if ready else 0,
            "running": status.running if status else 0,
            "waiting": status.waiting if status else 0,
            "kv": status.kv_used_tokens / status.kv_total_tokens
            if status and status.kv_total_tokens
            else 0.0,
            "tokens": link.output_tokens,
            "rounds": link.output_rounds,
            "copied": link.output_copied,
            "kept": self._recent.capacity,
        }


class _Reader:
    """What one page has been told."""

    def __init__(self, tokenizer: Tokenizer, chosen: RecentRequest | None, tokens: int) -> None:
        self.version = 0
        self.quiet = 0
        self._chosen = chosen
        self._tokens = tokens
        self._text = TokenText(tokenizer)

    def output(self) -> dict[str, Any] | None:
        """The chosen request's output behind what was told."""
        request = self._chosen
        if request is None or len(request.output_ids) <= self._tokens:
            return None
        first, length = self._tokens, len(request.output_ids)
        self._tokens = length
        segments = [
            Segment(max(s.start, first), s.stop, s.kind)
            for s in by_rounds(tuple(request.rounds), length)
            if s.stop > first
        ]
        return {
            "request": request.request_id,
            "tokens": length,
            "segments": [
                {
                    "kind": s.kind,
                    "tokens": s.stop - s.start,
                    "text": self._text.push(list(request.output_ids[s.start : s.stop])),
                }
                for s in segments
            ],
        }


def _dumps(body: Any) -> str:
    return msgspec.json.encode(body).decode()
