"""What a chat completion answers: bodies, stream events and usage."""

import time
from typing import Any

import msgspec

from services.gateway.generation import Generation
from shared.errors import NinferError
from shared.messages import GenerationStats

DONE = b"data: [DONE]\n\n"


class ChatReply:
    """One completion's envelope: the same id, time and model in every event."""

    def __init__(self, completion_id: str, model: str) -> None:
        self._base = {"id": completion_id, "created": int(time.time()), "model": model}

    def chunk(self, delta: dict[str, Any], finish_reason: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish_reason}
        return event({**self._base, "object": "chat.completion.chunk", "choices": [choice]})

    def usage_chunk(self, generation: Generation) -> bytes:
        return event(
            {
                **self._base,
                "object": "chat.completion.chunk",
                "choices": [],
                **self._closing(generation),
            }
        )

    def body(self, generation: Generation, text: str) -> dict[str, Any]:
        message = {"role": "assistant", "content": text, "refusal": None}
        choice = {
            "index": 0,
            "message": message,
            "logprobs": None,
            "finish_reason": generation.finish_reason,
        }
        return {
            **self._base,
            "object": "chat.completion",
            "choices": [choice],
            **self._closing(generation),
        }

    def _closing(self, generation: Generation) -> dict[str, Any]:
        assert generation.finished is not None
        stats = generation.finished.stats
        return {
            "usage": usage(stats, generation.output.tokens),
            "timings": timings(stats),
        }


def usage(stats: GenerationStats, output_tokens: int) -> dict[str, Any]:
    predicted = [s for s in stats.speculative.sources if s.kind == "predicted"]
    drafted = sum(s.drafted_tokens for s in predicted)
    accepted = sum(s.accepted_tokens for s in predicted)
    return {
        "prompt_tokens": stats.prompt_tokens,
        "completion_tokens": output_tokens,
        "total_tokens": stats.prompt_tokens + output_tokens,
        "prompt_tokens_details": {"cached_tokens": stats.cached_tokens, "audio_tokens": 0},
        "completion_tokens_details": {
            "reasoning_tokens": 0,
            "audio_tokens": 0,
            "accepted_prediction_tokens": accepted,
            "rejected_prediction_tokens": drafted - accepted,
        },
    }


def timings(stats: GenerationStats) -> dict[str, Any]:
    """llama.cpp's names: milliseconds, and drafts when there were any."""
    seconds = stats.timings
    prompt_n, prompt_ms = stats.computed_prefill_tokens, 1000 * seconds.prefill_s
    predicted_n, predicted_ms = stats.output_tokens, 1000 * seconds.decode_s
    # the first output token comes from the prefill, so decoding made one fewer
    decoded = max(0, predicted_n - 1)
    fields: dict[str, Any] = {
        "cache_n": stats.cached_tokens,
        "prompt_n": prompt_n,
        "prompt_ms": prompt_ms,
        "prompt_per_second": 1000 * prompt_n / prompt_ms if prompt_ms else 0.0,
        "predicted_n": predicted_n,
        "predicted_ms": predicted_ms,
        "predicted_per_second": 1000 * decoded / predicted_ms if predicted_ms else 0.0,
    }
    if stats.speculative.drafted_tokens:
        fields["draft_n"] = stats.speculative.drafted_tokens
        fields["draft_n_accepted"] = stats.speculative.accepted_tokens
    return fields


def event(payload: dict[str, Any]) -> bytes:
    return b"data: " + msgspec.json.encode(payload) + b"\n\n"


def error_body(error: NinferError) -> dict[str, Any]:
    kind = "invalid_request_error" if error.status < 500 else "server_error"
    if error.status == 429:
        kind = "rate_limit_error"
    return {
        "error": {
            "message": error.message,
            "type": kind,
            "param": error.param,
            "code": error.code,
        }
    }
