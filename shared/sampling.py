"""What a request asks of sampling and of drafting, and what it is told of probabilities."""

import numpy as np

from shared.wire import Wire


class Sampling(Wire, frozen=True, kw_only=True):
    temperature: float  # >= 0; 0 is greedy
    top_p: float  # (0, 1]
    top_k: int  # 0 keeps all
    min_p: float  # [0, 1]
    seed: int  # uint64, what the draws depend on, always set
    presence_penalty: float = 0.0  # off a token's logit once it stands in the output
    frequency_penalty: float = 0.0  # off it for each time
    repetition_penalty: float = 1.0  # divides positive logits of what prompt or output hold
    logit_bias: tuple[tuple[int, float], ...] = ()  # (token id, what is added to its logit)


class ThinkingLimit(Wire, frozen=True, kw_only=True):
    """Reasoning longer than the budget is closed by `forced_ids` in place of the draws."""

    budget_tokens: int  # >= 0
    start_id: int | None  # the token that opens reasoning
    end_id: int  # the token that closes it
    forced_ids: tuple[int, ...]  # `end_id` is their last, and only there
    is_open: bool  # the prompt ends inside of reasoning


class Grammar(Wire, frozen=True, kw_only=True):
    """What the output must look like."""

    text: str  # as llguidance serialises a grammar
    after_id: int | None = None  # it begins behind this token; None: with the first token


class Speculation(Wire, frozen=True, kw_only=True):
    """What one request wants of drafting, within what the server was started with."""

    ngram_draft_tokens: int | None = None  # at most so wide, 0: no copies
    draft_tokens: int | None = None  # at most so many of the neural drafter, 0: none
    ngram_min_match: int | None = None


class TokenLogprobs(Wire, frozen=True, kw_only=True):
    """Natural logarithms of the model's own probabilities for n tokens, best alternatives first."""

    width: int  # alternatives for each token
    chosen: np.ndarray  # float32 [n]
    top_ids: np.ndarray  # int32 [n * width]
    top: np.ndarray  # float32 [n * width]
