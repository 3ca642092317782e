"""What Messages answers: a stream of blocks that never overlap, or the whole message."""

import json
from typing import Any, assert_never

from services.gateway.output.events import (
    CallArguments,
    CallEnd,
    CallStart,
    Content,
    Event,
    Reasoning,
    merged,
)
from services.gateway.protocols.protocol import Head
from services.gateway.protocols.sse import named
from services.gateway.protocols.usage import messages_usage, ninfer_object
from services.gateway.result import Result
from shared.errors import NinferError, PromptTooLong

STOP_REASONS = {
    "stop": "end_turn",
    "stop_string": "stop_sequence",
    "tool_calls": "tool_use",
    "length": "max_tokens",
    "context": "model_context_window_exceeded",
}
ERROR_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    405: "invalid_request_error",
    413: "request_too_large",
    415: "invalid_request_error",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
}
PING = b'event: ping\ndata: {"type":"ping"}\n\n'


class MessagesReply:
    def __init__(self, head: Head, model: str) -> None:
        self._head = head
        self._model = model
        self._open: type[Event] | None = None  # what the open block holds
        self._blocks = 0

    def opening(self) -> bytes:
        usage = {
            "input_tokens": self._head.prompt_tokens,
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": 0,
            "output_tokens": 0,
        }
        message = self._message([], None, None, usage)
        return named({"type": "message_start", "message": message})

    def events(self, events: list[Event]) -> bytes:
        return b"".join(self._event(event) for event in events)

    def heartbeat(self) -> bytes:
        return PING

    def terminal(self, result: Result, before: bytes) -> bytes:
        delta = {"stop_reason": STOP_REASONS[result.reason], "stop_sequence": result.stop}
        end = {
            "type": "message_delta",
            "delta": delta,
            "usage": messages_usage(result),
            "ninfer": ninfer_object(result),
        }
        return before + self._close() + named(end) + named({"type": "message_stop"})

    def failed(self, error: NinferError) -> bytes:
        body = error_body(error, self._head.request_id)
        return named(body)

    def body(self, events: list[Event], result: Result, ninfer: dict[str, Any]) -> dict[str, Any]:
        content = blocks_of(merged(events))
        reason = STOP_REASONS[result.reason]
        message = self._message(content, reason, result.stop, messages_usage(result))
        return {**message, "ninfer": ninfer}

    def _message(
        self,
        content: list[dict[str, Any]],
        stop_reason: str | None,
        stop_sequence: str | None,
        usage: dict[str, Any],
    ) -> dict[str, Any]:
        return {
            "id": self._head.request_id,
            "type": "message",
            "role": "assistant",
            "model": self._model,
            "content": content,
            "stop_reason": stop_reason,
            "stop_sequence": stop_sequence,
            "usage": usage,
        }

    def _event(self, event: Event) -> bytes:
        match event:
            case Content(text=text):
                opened = self._begin(Content, {"type": "text", "text": ""})
                return opened + self._delta({"type": "text_delta", "text": text})
            case Reasoning(text=text):
                block = {"type": "thinking", "thinking": "", "signature": ""}
                opened = self._begin(Reasoning, block)
                return opened + self._delta({"type": "thinking_delta", "thinking": text})
            case CallStart(key=key, name=name):
                call = {"type": "tool_use", "id": tool_use_id(key), "name": name}
                return self._close() + self._start(CallStart, call | {"input": {}})
            case CallArguments(text=text):
                return self._delta({"type": "input_json_delta", "partial_json": text})
            case CallEnd():
                return b""  # closed when something follows
            case _:
                assert_never(event)

    def _begin(self, kind: type[Event], block: dict[str, Any]) -> bytes:
        """Opens a block of this kind unless one is open."""
        return b"" if self._open is kind else self._close() + self._start(kind, block)

    def _start(self, kind: type[Event], block: dict[str, Any]) -> bytes:
        self._open = kind
        self._blocks += 1
        fields = {"index": self._blocks - 1, "content_block": block}
        return named({"type": "content_block_start", **fields})

    def _close(self) -> bytes:
        if self._open is None:
            return b""
        self._open = None
        return named({"type": "content_block_stop", "index": self._blocks - 1})

    def _delta(self, delta: dict[str, Any]) -> bytes:
        return named({"type": "content_block_delta", "index": self._blocks - 1, "delta": delta})


def tool_use_id(key: str) -> str:
    return f"toolu_{key}"


def blocks_of(events: list[Event]) -> list[dict[str, Any]]:
    """The whole blocks, as a message holds them."""
    blocks: list[dict[str, Any]] = []
    arguments: list[str] = []
    for event in events:
        match event:
            case Content(text=text):
                blocks.append({"type": "text", "text": text})
            case Reasoning(text=text):
                blocks.append({"type": "thinking", "thinking": text, "signature": ""})
            case CallStart(key=key, name=name):
                arguments = []
                blocks.append({"type": "tool_use", "id": tool_use_id(key), "name": name})
            case CallArguments(text=text):
                arguments.append(text)
            case CallEnd():
                blocks[-1]["input"] = json.loads("".join(arguments))
            case _:
                assert_never(event)
    return blocks


def error_body(error: NinferError, request_id: str) -> dict[str, Any]:
    kind = ERROR_TYPES.get(error.status, "api_error")
    message = error.message
    if isinstance(error, PromptTooLong) and error.limit is not None:
        # these words are what makes Claude Code compact its history
        message = f"prompt is too long: {error.prompt_tokens} tokens > {error.limit} maximum"
    elif error.param is not None and not (
        message.startswith(error.param) or f"`{error.param}`" in message
    ):
        message = f"{error.param}: {message}"
    return {
        "type": "error",
        "error": {"type": kind, "message": message},
        "request_id": request_id,
    }
