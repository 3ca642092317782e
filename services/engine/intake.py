"""From a `Generate` to a request, or to its refusal. The gateway has checked all of it for people;
here it keeps a wrong gateway from hurting the other requests."""

import time
from dataclasses import dataclass

from services.engine.ledger import Ledger
from services.engine.request import Request
from services.engine.table import RequestTable
from services.engine.tally import Tally
from services.engine.target import Targets
from shared.messages import EngineLimits, Failed, FailureCode, Generate


@dataclass(frozen=True)
class Intake:
    limits: EngineLimits
    context: int  # tokens of prompt and output together
    vocab_size: int
    targets: Targets

    @property
    def draft_window(self) -> int:
        return max(self.limits.draft_tokens, self.limits.ngram_draft_tokens)

    def take(self, gateway: bytes, generate: Generate, table: RequestTable) -> Request | Failed:
        """A request that is ready to wait."""
        if len(table) >= self.limits.max_waiting + self.limits.max_concurrency:
            return _refuse(generate, "rate_limit_exceeded", "too many requests are open")
        if generate.request_id in table:
            return _refuse(generate, "server_error", "the gateway sent a request twice")
        refused = _check(generate, self.context, self.vocab_size)
        if refused is not None:
            return refused
        try:
            target = self.targets.make(generate)
        except ValueError as exc:
            return _refuse(generate, "server_error", f"the grammar cannot be used: {exc}")
        room = self.context - len(generate.prompt_ids)
        output_limit = min(generate.max_output_tokens, room)
        return Request(
            gateway=gateway,
            generate=generate,
            ledger=Ledger(generate.prompt_ids, output_limit),
            output_limit=output_limit,
            limited_by="context" if room < generate.max_output_tokens else "length",
            tally=Tally(time.monotonic(), self.draft_window),
            target=target,
        )


def _check(generate: Generate, context: int, vocab_size: int) -> Failed | None:
    """None if the request can run."""
    prompt_len = len(generate.prompt_ids)
    if prompt_len >= context:
        return _refuse(
            generate,
            "context_length_exceeded",
            f"This model's maximum context length is {context} tokens, "
            f"and the prompt has {prompt_len}; at least one must be left for output.",
        )
    if prompt_len == 0 or generate.max_output_tokens < 1:
        return _refuse(generate, "server_error", "the gateway sent an empty or limitless request")
    if not _all_in_vocabulary(generate, vocab_size):
        return _refuse(
            generate, "server_error", f"a token is outside the vocabulary of {vocab_size}"
        )
    thinking = generate.thinking
    if thinking is not None and thinking.forced_ids[-1:] != (thinking.end_id,):
        return _refuse(generate, "server_error", "forced reasoning tokens do not end the reasoning")
    return None


def _refuse(generate: Generate, code: FailureCode, text: str) -> Failed:
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
