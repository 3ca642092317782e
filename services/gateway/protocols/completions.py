"""`POST /v1/completions`, the form before chats: a prompt that no template shapes."""

import time
from collections.abc import Sequence
from typing import Any

from services.gateway.conversation import RawPrompt
from services.gateway.output.events import Content, Event
from services.gateway.protocols.chat_reply import FINISH_REASONS
from services.gateway.protocols.choices_reply import ChoicesReply
from services.gateway.protocols.completions_body import CompletionsBody
from services.gateway.protocols.decoding import check_stops, decode
from services.gateway.protocols.decoding_fields import sampling_of, stops_of, wishes_of
from services.gateway.protocols.openai_errors import error_body
from services.gateway.protocols.protocol import Head
from services.gateway.protocols.sse import DONE, data
from services.gateway.protocols.structured import grammar_of
from services.gateway.protocols.unserved import COMPLETIONS, Unserved
from services.gateway.protocols.usage import chat_usage, ninfer_object, timings, timings_so_far
from services.gateway.request import Request
from services.gateway.result import Result
from shared.errors import BadParameter, NinferError

_unserved = Unserved("completions", COMPLETIONS)


def parse(raw: bytes) -> Request:
    """Raises BadParameter, which names the field."""
    body = decode(raw, CompletionsBody)
    _unserved.refuse(raw)
    return Request(
        body=body,
        prompt=RawPrompt(_prompt_of(body.prompt)),
        prompt_param="prompt",
        described=_describe(body),
        model=body.model,
        stream=bool(body.stream),
        max_tokens=body.max_tokens,
        sampling=sampling_of(body),
        seed=body.seed,
        choices=body.n or 1,
        stops=check_stops(stops_of(body.stop), "stop"),
        wishes=wishes_of(body, grammar=grammar_of(body)),
        metadata=body.metadata,
    )


def _prompt_of(prompt: str | list[Any]) -> str | tuple[int, ...]:
    """A text, a list of one text, token ids, or a list of one list of token ids."""
    if isinstance(prompt, list) and len(prompt) == 1 and isinstance(prompt[0], str | list):
        prompt = prompt[0]
    if isinstance(prompt, str):
        if not prompt:
            raise BadParameter("prompt must not be empty", param="prompt")
        return prompt
    if not prompt or not all(type(token) is int and 0 <= token < 1 << 31 for token in prompt):
        raise BadParameter("prompt takes one text or one list of token ids", param="prompt")
    return tuple(prompt)


def _describe(body: CompletionsBody) -> dict[str, Any]:
    return {
        "stream": bool(body.stream),
        "message_count": 0,
        "tool_count": 0,
        "tool_choice": None,
        "has_tool_history": False,
        "has_prediction": False,
        "stop_count": len(stops_of(body.stop)),
    }


class CompletionsReply:
    """One choice, the only one or one of several (`choices_reply.py`)."""

    def __init__(self, head: Head, *, with_usage: bool, with_timings: bool) -> None:
        self._base = {
            "id": head.request_id,
            "object": "text_completion",
            "created": int(time.time()),
            "model": head.model_id,
        }
        self._index = head.choice
        self._with_usage = with_usage
        self._progress = head.progress if with_timings else None

    def opening(self) -> bytes:
        return self._chunk("")

    def events(self, events: list[Event]) -> bytes:
        facts: dict[str, Any] = {}
        if self._progress is not None:
            facts["timings"] = timings_so_far(self._progress())
        texts = [event.text for event in events if isinstance(event, Content)]
        return b"".join(self._chunk(text, **facts) for text in texts)

    def heartbeat(self) -> bytes:
        return self._chunk("")

    def terminal(self, result: Result, before: bytes) -> bytes:
        return before + self.finish(result) + self.closing(result)

    def finish(self, result: Result) -> bytes:
        facts = {"timings": timings(result.stats), "ninfer": ninfer_object(result)}
        return self._chunk("", FINISH_REASONS[result.reason], **facts)

    def closing(self, result: Result) -> bytes:
        if not self._with_usage:
            return DONE
        fields = {"choices": [], "usage": chat_usage(result), "timings": timings(result.stats)}
        return data({**self._base, **fields}) + DONE

    def failed(self, error: NinferError) -> bytes:
        return data(error_body(error))

    def body(self, events: list[Event], result: Result, ninfer: dict[str, Any]) -> dict[str, Any]:
        return self.whole([self.choice(events, result)], result, ninfer)

    def choice(self, events: list[Event], result: Result) -> dict[str, Any]:
        text = "".join(event.text for event in events if isinstance(event, Content))
        return self._choice(text, FINISH_REASONS[result.reason])

    def whole(
        self, choices: list[dict[str, Any]], result: Result, ninfer: dict[str, Any]
    ) -> dict[str, Any]:
        return {
            **self._base,
            "choices": choices,
            "usage": chat_usage(result),
            "timings": timings(result.stats),
            "ninfer": ninfer,
        }

    def _chunk(self, text: str, finish_reason: str | None = None, **facts: Any) -> bytes:
        return data({**self._base, "choices": [self._choice(text, finish_reason)], **facts})

    def _choice(self, text: str, finish_reason: str | None) -> dict[str, Any]:
        return {
            "index": self._index,
            "text": text,
            "logprobs": None,
            "finish_reason": finish_reason,
        }


class Completions:
    name = "openai_completions"
    id_prefix = "cmpl-"
    parse = staticmethod(parse)
    error = staticmethod(error_body)

    @staticmethod
    def reply(request: Request, head: Head) -> CompletionsReply:
        assert isinstance(request.body, CompletionsBody)
        options = request.body.stream_options
        with_usage = bool(options is not None and options.include_usage)
        with_timings = bool(request.body.timings_per_token)
        return CompletionsReply(head, with_usage=with_usage, with_timings=with_timings)

    def choices(self, request: Request, heads: Sequence[Head]) -> ChoicesReply:
        return ChoicesReply([self.reply(request, head) for head in heads])
