"""What a chat completion answers: the stream's chunks, or the whole body."""

import time
from typing import Any, assert_never

from services.gateway.output.events import (
    CallArguments,
    CallEnd,
    CallStart,
    Content,
    Event,
    Reasoning,
)
from services.gateway.output.token_logprobs import Candidate
from services.gateway.protocols.openai_errors import error_body
from services.gateway.protocols.protocol import Head
from services.gateway.protocols.sse import DONE, data
from services.gateway.protocols.usage import chat_usage, ninfer_object, timings, timings_so_far
from services.gateway.result import Result
from shared.errors import NinferError

FINISH_REASONS = {
    "stop": "stop",
    "stop_string": "stop",
    "tool_calls": "tool_calls",
    "length": "length",
    "context": "length",
}


class ChatReply:
    """One completion's envelope: the same id, time and model in every event. It writes one choice,
    the only one or one of several (`choices_reply.py`)."""

    def __init__(self, head: Head, *, with_usage: bool, with_timings: bool) -> None:
        created = int(time.time())
        self._base = {"id": head.request_id, "created": created, "model": head.model_id}
        self._index = head.choice
        self._with_usage = with_usage
        self._progress = head.progress if with_timings else None
        self._calls = 0

    def opening(self) -> bytes:
        return self._chunk({"role": "assistant", "content": ""})

    def events(self, events: list[Event]) -> bytes:
        deltas = [(self._delta(event), logprobs_of([event])) for event in events]
        facts: dict[str, Any] = {}
        if self._progress is not None:
            facts["timings"] = timings_so_far(self._progress())
        return b"".join(
            self._chunk(delta, logprobs=found, **facts) for delta, found in deltas if delta
        )

    def heartbeat(self) -> bytes:
        return self._chunk({})

    def terminal(self, result: Result, before: bytes) -> bytes:
        return before + self.finish(result) + self.closing(result)

    def finish(self, result: Result) -> bytes:
        facts = {"timings": timings(result.stats), "ninfer": ninfer_object(result)}
        return self._chunk({}, FINISH_REASONS[result.reason], **facts)

    def closing(self, result: Result) -> bytes:
        if not self._with_usage:
            return DONE
        fields = {"choices": [], "usage": chat_usage(result), "timings": timings(result.stats)}
        return data({**self._base, "object": "chat.completion.chunk", **fields}) + DONE

    def failed(self, error: NinferError) -> bytes:
        return data(error_body(error))

    def body(self, events: list[Event], result: Result, ninfer: dict[str, Any]) -> dict[str, Any]:
        return self.whole([self.choice(events, result)], result, ninfer)

    def choice(self, events: list[Event], result: Result) -> dict[str, Any]:
        text = "".join(e.text for e in events if isinstance(e, Content))
        thought = "".join(e.text for e in events if isinstance(e, Reasoning))
        calls = calls_of(events)
        message: dict[str, Any] = {
            "role": "assistant",
            "content": text if text or not calls else None,
            "refusal": None,
        }
        if thought:
            message["reasoning_content"] = thought
        if calls:
            message["tool_calls"] = calls
        return {
            "index": self._index,
            "message": message,
            "logprobs": logprobs_of(events),
            "finish_reason": FINISH_REASONS[result.reason],
        }

    def whole(
        self, choices: list[dict[str, Any]], result: Result, ninfer: dict[str, Any]
    ) -> dict[str, Any]:
        return {
            **self._base,
            "object": "chat.completion",
            "choices": choices,
            "usage": chat_usage(result),
            "timings": timings(result.stats),
            "ninfer": ninfer,
        }

    def _chunk(
        self,
        delta: dict[str, Any],
        finish_reason: str | None = None,
        logprobs: dict[str, Any] | None = None,
        **facts: Any,
    ) -> bytes:
        choice = {
            "index": self._index,
            "delta": delta,
            "logprobs": logprobs,
            "finish_reason": finish_reason,
        }
        head = {**self._base, "object": "chat.completion.chunk"}
        return data({**head, "choices": [choice], **facts})

    def _delta(self, event: Event) -> dict[str, Any] | None:
        match event:
            case Content(text=text):
                return {"content": text}
            case Reasoning(text):
                return {"reasoning_content": text}
            case CallStart(key, name):
                self._calls += 1
                function = {"name": name, "arguments": ""}
                call = {"id": call_id(key), "type": "function", "function": function}
                return {"tool_calls": [{"index": self._calls - 1, **call}]}
            case CallArguments(text):
                # id, type and name stand only in the opening delta: helpers concatenate strings
                piece = {"index": self._calls - 1, "function": {"arguments": text}}
                return {"tool_calls": [piece]}
            case CallEnd():
                return None
            case _:
                assert_never(event)


def logprobs_of(events: list[Event]) -> dict[str, Any] | None:
    """The `logprobs` object of a choice; None where they were not asked for."""
    found = [entry for event in events if isinstance(event, Content) for entry in event.logprobs]
    if not found:
        return None
    content = [_entry(e.token) | {"top_logprobs": [_entry(c) for c in e.top]} for e in found]
    return {"content": content, "refusal": None}


def _entry(candidate: Candidate) -> dict[str, Any]:
    text, logprob = candidate
    # -9999 is what OpenAI's API says for what has no probability at all: JSON has no infinity
    return {
        "token": text.decode(errors="replace"),
        "logprob": logprob if logprob > -9999.0 else -9999.0,
        "bytes": list(text),
    }


def call_id(key: str) -> str:
    return f"call_{key}"


def calls_of(events: list[Event]) -> list[dict[str, Any]]:
    """The whole calls, as a message holds them."""
    calls: list[dict[str, Any]] = []
    for event in events:
        if isinstance(event, CallStart):
            function = {"name": event.name, "arguments": ""}
            calls.append({"id": call_id(event.key), "type": "function", "function": function})
        elif isinstance(event, CallArguments):
            calls[-1]["function"]["arguments"] += event.text
    return calls
