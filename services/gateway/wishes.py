"""What a request asks of the engine beside its text: limits, logprobs, speculation."""

from dataclasses import dataclass

from services.gateway.effort import Effort
from services.gateway.forced_calls import ForcedCalls
from shared.messages import Speculation


@dataclass(frozen=True, kw_only=True)
class Wishes:
    logit_bias: tuple[tuple[int, float], ...] = ()
    min_tokens: int = 0
    ignore_eos: bool = False  # the model's own end is never drawn
    stop_token_ids: tuple[int, ...] = ()  # end the output beside the model's own, without a text
    top_logprobs: int | None = None  # None: no logprobs at all
    speculation: Speculation = Speculation()
    cache_salt: str = ""
    grammar: str | None = None  # what the answer must look like, as llguidance serialises it
    forced_calls: ForcedCalls | None = None  # the answer must be tool calls
    thinking_budget: int | None = None  # tokens of reasoning, None: as many as it takes
    effort: Effort | None = None  # where the template does not know it, a budget
    needs_thinking: bool = True  # a budget for a model that does not think is refused
