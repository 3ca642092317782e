"""What the target says at each column of one request's row: its tokens and their logprobs."""

from collections.abc import Iterator, Sequence

import numpy as np
import torch

from services.engine.grammar import GrammarCompiler, GrammarState
from services.engine.sampler import draws
from services.engine.shaping import LogitShaper
from services.engine.thinking import ThinkingBudget
from shared.messages import Generate, TokenLogprobs


class Target:
    """Holds what its draws depend on beside the logits; all of it is committed history."""

    def __init__(
        self,
        generate: Generate,
        vocab_size: int,
        device: torch.device,
        grammar: GrammarState | None = None,
    ) -> None:
        self._sampling = generate.sampling
        self._top_logprobs = generate.top_logprobs
        self._shaper: LogitShaper | None = None
        if LogitShaper.is_needed(generate):
            self._shaper = LogitShaper(generate, vocab_size, device)
        self._thinking = ThinkingBudget(generate.thinking) if generate.thinking else None
        self._grammar = grammar

    def tokens(
        self, logits: torch.Tensor, drafts: Sequence[int], first_position: int
    ) -> Iterator[int]:
        """The target's token at each column, computed as they are asked for.

        Args:
            logits: fp32 [1 + drafts, vocab].
            first_position: of the token that column 0 yields, in prompt and output together.
        """

        def shape(block: torch.Tensor, first_column: int) -> torch.Tensor:
            if self._shaper is not None:
                block = self._shaper.shape(block, first_column, drafts)
            if self._grammar is not None:
                block = block.clone()
                self._grammar.mask(block, first_column, drafts)
            return block

        is_shaped = self._shaper is not None or self._grammar is not None
        drawn = draws(logits, self._sampling, first_position, shape if is_shaped else None)
        return drawn if self._thinking is None else self._thinking.over(drawn)

    def admitted(self, drafts: Sequence[int]) -> int:
        """How many of the drafts could be accepted at all."""
        return len(drafts) if self._grammar is None else self._grammar.admitted(drafts)

    def observe(self, token_ids: Sequence[int]) -> None:
        """Committed output."""
        if self._shaper is not None:
            self._shaper.observe(token_ids)
        if self._thinking is not None:
            self._thinking.observe(token_ids)
        if self._grammar is not None:
            self._grammar.observe(token_ids)

    def logprobs(self, logits: torch.Tensor, token_ids: Sequence[int]) -> TokenLogprobs | None:
        """Of the committed `token_ids`, from the model's own distribution: before bias, penalties
        and temperature. None if the request did not ask."""
        if self._top_logprobs is None:
            return None
        columns = logits[: len(token_ids)].log_softmax(-1)
        chosen = columns.gather(1, torch.tensor(token_ids, device=logits.device).unsqueeze(1))
        top = columns.topk(min(self._top_logprobs, columns.shape[1]), dim=-1)
        return TokenLogprobs(
            width=top.indices.shape[1],
            chosen=_array(chosen, np.float32),
            top_ids=_array(top.indices, np.int32),
            top=_array(top.values, np.float32),
        )


class Targets:
    """Makes the target of each request."""

    def __init__(self, vocab_size: int, device: torch.device, grammars: GrammarCompiler) -> None:
        self._vocab_size = vocab_size
        self._device = device
        self._grammars = grammars

    def make(self, generate: Generate) -> Target:
        """Raises ValueError: the grammar is none."""
        grammar = self._grammars.start(generate.grammar) if generate.grammar else None
        return Target(generate, self._vocab_size, self._device, grammar)


def _array(values: torch.Tensor, dtype: type) -> np.ndarray:
    return values.flatten().cpu().numpy().astype(dtype)
