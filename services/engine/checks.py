"""What the engine refuses before a request is queued. The gateway has checked all of it for people;
here it keeps a wrong gateway from hurting the other requests."""

from shared.messages import Failed, FailureCode, Generate


def check_request(generate: Generate, context: int, vocab_size: int) -> Failed | None:
    """None if the request can run."""
    prompt_len = len(generate.prompt_ids)
    if prompt_len >= context:
        return refuse(
            generate,
            "context_length_exceeded",
            f"This model's maximum context length is {context} tokens, "
            f"and the prompt has {prompt_len}; at least one must be left for output.",
        )
    if prompt_len == 0 or generate.max_output_tokens < 1:
        return refuse(generate, "server_error", "the gateway sent an empty or limitless request")
    if not _all_in_vocabulary(generate, vocab_size):
        return refuse(
            generate, "server_error", f"a token is outside the vocabulary of {vocab_size}"
        )
    thinking = generate.thinking
    if thinking is not None and thinking.forced_ids[-1:] != (thinking.end_id,):
        return refuse(generate, "server_error", "forced reasoning tokens do not end the reasoning")
    return None


def refuse(generate: Generate, code: FailureCode, text: str) -> Failed:
    return Failed(request_id=generate.request_id, code=code, message=text)


def _all_in_vocabulary(generate: Generate, vocab_size: int) -> bool:
    ids = generate.prompt_ids
    named = [token_id for token_id, _ in generate.sampling.logit_bias]
    if generate.thinking is not None:
        named += generate.thinking.forced_ids
    return (
        int(ids.min()) >= 0
        and int(ids.max()) < vocab_size
        and all(0 <= token_id < vocab_size for token_id in named)
    )
