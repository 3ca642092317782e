"""What a request asks of the engine beside its text: limits, logprobs, speculation."""

from dataclasses import dataclass

from shared.messages import Speculation


@dataclass(frozen=True, kw_only=True)
class Wishes:
    logit_bias: tuple[tuple[int, float], ...] = ()
    min_tokens: int = 0
    top_logprobs: int | None = None  # None: no logprobs at all
    speculation: Speculation = Speculation()
    cache_salt: str = ""
    grammar: str | None = None  # what the answer must look like, as llguidance serialises it
    thinking_budget: int | None = None  # tokens of reasoning, None: as many as it takes
    needs_thinking: bool = True  # a budget for a model that does not think is refused
