"""Counts and times, in the words of each protocol."""

from typing import Any

from services.gateway.acceptance import acceptance
from services.gateway.draft_session import session_object
from services.gateway.result import Progress, Result
from shared.messages import GenerationStats


def ninfer_object(result: Result) -> dict[str, Any]:
    """The server's own facts about an answer, in every protocol's body as `ninfer`."""
    return {
        "timings": timings(result.stats),
        "speculative": acceptance(result.stats.speculative),
        **session_object(result.archive),
    }


def chat_usage(result: Result) -> dict[str, Any]:
    stats = result.stats
    predicted = [s for s in stats.speculative.sources if s.kind == "predicted"]
    drafted = sum(s.drafted_tokens for s in predicted)
    accepted = sum(s.accepted_tokens for s in predicted)
    return {
        "prompt_tokens": stats.prompt_tokens,
        "completion_tokens": result.output_tokens,
        "total_tokens": stats.prompt_tokens + result.output_tokens,
        "prompt_tokens_details": {"cached_tokens": stats.cached_tokens, "audio_tokens": 0},
        "completion_tokens_details": {
            "reasoning_tokens": result.reasoning_tokens,
            "audio_tokens": 0,
            "accepted_prediction_tokens": accepted,
            "rejected_prediction_tokens": drafted - accepted,
        },
    }


def responses_usage(result: Result) -> dict[str, Any]:
    stats = result.stats
    return {
        "input_tokens": stats.prompt_tokens,
        "input_tokens_details": {"cached_tokens": stats.cached_tokens, "cache_write_tokens": 0},
        "output_tokens": result.output_tokens,
        "output_tokens_details": {"reasoning_tokens": result.reasoning_tokens},
        "total_tokens": stats.prompt_tokens + result.output_tokens,
    }


def messages_usage(result: Result) -> dict[str, Any]:
    """Here the input excludes what came from the cache; the sum is the prompt."""
    stats = result.stats
    return {
        "input_tokens": stats.prompt_tokens - stats.cached_tokens,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": stats.cached_tokens,
        "output_tokens": result.output_tokens,
    }


def timings_so_far(progress: Progress) -> dict[str, Any]:
    """The same names in the middle of an output. What came from the cache is not known yet, so the
    prompt counts whole, and its time is all until the first token."""
    prompt_ms, predicted_ms = 1000 * progress.first_s, 1000 * progress.since_first_s
    decoded = max(0, progress.output_tokens - 1)
    fields: dict[str, Any] = {
        "prompt_n": progress.prompt_tokens,
        "prompt_ms": prompt_ms,
        "predicted_n": progress.output_tokens,
        "predicted_ms": predicted_ms,
        "predicted_per_second": 1000 * decoded / predicted_ms if predicted_ms else 0.0,
    }
    if progress.copied_tokens:
        fields["draft_n_accepted"] = progress.copied_tokens
    return fields


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
