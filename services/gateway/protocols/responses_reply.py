"""What Responses answers: a stream of items and their parts, or the whole response."""

import time
from collections.abc import Callable
from typing import Any, assert_never

from services.gateway.output.events import (
    CallArguments,
    CallEnd,
    CallStart,
    Content,
    Event,
    Reasoning,
)
from services.gateway.protocols.protocol import Head
from services.gateway.protocols.responses_body import ResponsesBody
from services.gateway.protocols.responses_output import (
    CustomCallItem,
    FunctionCallItem,
    MessageItem,
    OutputItem,
    ReasoningItem,
)
from services.gateway.protocols.responses_tools import Tool, ToolSet
from services.gateway.protocols.sse import named
from services.gateway.protocols.usage import ninfer_object, responses_usage
from services.gateway.result import Result
from shared.errors import NinferError

Keep = Callable[[dict[str, Any]], None]


class ResponsesReply:
    """`keep` gets each finished response that the client wants stored."""

    def __init__(self, head: Head, body: ResponsesBody, keep: Keep | None) -> None:
        self._head = head
        self._body = body
        self._keep = keep
        self._created = int(time.time())
        self._tools = ToolSet.read(body.tools or []).by_shown_name
        self._sequence = 0
        self._items: list[dict[str, Any]] = []  # those that are done
        self._open: OutputItem | None = None

    def opening(self) -> bytes:
        return b"".join(
            self._write({"type": kind, "response": self._response("in_progress")})
            for kind in ("response.created", "response.in_progress")
        )

    def events(self, events: list[Event]) -> bytes:
        return b"".join(map(self._write, self._read(events)))

    def heartbeat(self) -> bytes:
        # a comment would not reset Codex's timer; it takes this event any number of times
        response = self._response("in_progress")
        return self._write({"type": "response.in_progress", "response": response})

    def terminal(self, result: Result, before: bytes) -> bytes:
        is_cut = result.reason in ("length", "context")
        end = b"".join(map(self._write, self._close("incomplete" if is_cut else "completed")))
        response = {**self._finished(result), "ninfer": ninfer_object(result)}
        kind = "response.incomplete" if is_cut else "response.completed"
        return end + before + self._write({"type": kind, "response": response})

    def failed(self, error: NinferError) -> bytes:
        failure = {"code": error.code, "message": error.message}
        response = self._response("failed") | {"error": failure}
        return self._write({"type": "response.failed", "response": response})

    def body(self, events: list[Event], result: Result, ninfer: dict[str, Any]) -> dict[str, Any]:
        self._read(events)
        is_cut = result.reason in ("length", "context")
        self._close("incomplete" if is_cut else "completed")
        return {**self._finished(result), "ninfer": ninfer}

    def _finished(self, result: Result) -> dict[str, Any]:
        is_cut = result.reason in ("length", "context")
        response = self._response("incomplete" if is_cut else "completed")
        response["usage"] = responses_usage(result)
        if is_cut:
            response["incomplete_details"] = {"reason": "max_output_tokens"}
        if self._keep is not None:
            self._keep(response)
        return response

    def _read(self, events: list[Event]) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        for event in events:
            match event:
                case Content(text=text):
                    found += self._text(MessageItem, text)
                case Reasoning(text=text):
                    found += self._text(ReasoningItem, text)
                case CallStart(key=key, name=name):
                    tool = self._tools.get(name) or Tool(name, None, is_custom=False)
                    kind = CustomCallItem if tool.is_custom else FunctionCallItem
                    found += self._begin(kind(key, tool))
                case CallArguments(text=text):
                    found += self._grow(text)
                case CallEnd(complete=complete):
                    found += self._close("completed" if complete else "incomplete")
                case _:
                    assert_never(event)
        return found

    def _text(self, kind: type[MessageItem | ReasoningItem], text: str) -> list[dict[str, Any]]:
        begun = [] if isinstance(self._open, kind) else self._begin(kind())
        return begun + self._grow(text)

    def _begin(self, item: OutputItem) -> list[dict[str, Any]]:
        closed = self._close("completed")
        self._open = item
        added = {"type": "response.output_item.added", "item": item.shown("in_progress")}
        return [*closed, *map(self._placed, [added, *item.begun()])]

    def _grow(self, text: str) -> list[dict[str, Any]]:
        assert self._open is not None
        return [self._placed(event) for event in self._open.add(text)]

    def _close(self, status: str) -> list[dict[str, Any]]:
        if self._open is None:
            return []
        ended = self._open.ended(complete=status == "completed")
        shown = self._open.shown(status)
        done = {"type": "response.output_item.done", "item": shown}
        events = [self._placed(event) for event in [*ended, done]]
        self._items.append(shown)
        self._open = None
        return events

    def _placed(self, event: dict[str, Any]) -> dict[str, Any]:
        """With where it belongs: whole items carry their id, their parts name it."""
        assert self._open is not None
        place: dict[str, Any] = {"output_index": len(self._items)}
        if "item" not in event:
            place["item_id"] = self._open.id
        return {**event, **place}

    def _write(self, event: dict[str, Any]) -> bytes:
        self._sequence += 1
        return named({**event, "sequence_number": self._sequence - 1})

    def _response(self, status: str) -> dict[str, Any]:
        body = self._body
        effort = body.reasoning.effort if body.reasoning else None
        summary = body.reasoning.summary if body.reasoning else None
        parallel = body.parallel_tool_calls
        return {
            "id": self._head.request_id,
            "object": "response",
            "created_at": self._created,
            "status": status,
            "background": False,
            "error": None,
            "incomplete_details": None,
            "instructions": body.instructions,
            "max_output_tokens": body.max_output_tokens,
            "max_tool_calls": body.max_tool_calls,
            "metadata": body.metadata or {},
            "model": self._head.model_id,
            "output": list(self._items),
            "parallel_tool_calls": True if parallel is None else parallel,
            "previous_response_id": body.previous_response_id,
            "reasoning": {"effort": effort, "summary": summary},
            "store": self._keep is not None,
            "temperature": body.temperature,
            "text": {"format": {"type": "text"}},
            "tool_choice": body.tool_choice or "auto",
            "tools": body.tools or [],
            "top_p": body.top_p,
            "truncation": "disabled",
            "usage": None,
        }
