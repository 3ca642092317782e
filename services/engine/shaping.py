"""What is done to a column's logits before its token is drawn: bias, minimum length, penalties.

The order is vLLM's: additive bias, forbidden tokens, repetition penalty, then presence and
frequency. Presence and frequency count the output; repetition counts the prompt too.
"""

from collections.abc import Sequence

import torch

from shared.messages import Generate, Sampling


class LogitShaper:
    """One request's rules, and the counts of its committed tokens.

    Counts are dense, [vocab], so that a round costs the same however long the output is.
    """

    def __init__(self, generate: Generate, vocab_size: int, device: torch.device) -> None:
        sampling = generate.sampling
        self._sampling = sampling
        self._min_tokens = generate.min_output_tokens
        self._observed = 0
        self._bias_ids = torch.tensor([i for i, _ in sampling.logit_bias], device=device).long()
        self._bias = torch.tensor([bias for _, bias in sampling.logit_bias], device=device)
        self._stop_ids = torch.tensor(generate.stop_ids, device=device).long()
        self._counts: torch.Tensor | None = None  # fp32 [vocab], of the output
        self._in_prompt: torch.Tensor | None = None  # bool [vocab]
        if _penalises(sampling):
            self._counts = torch.zeros(vocab_size, device=device)
            self._in_prompt = torch.zeros(vocab_size, dtype=torch.bool, device=device)
            if sampling.repetition_penalty != 1.0:
                prompt = torch.from_numpy(generate.prompt_ids.astype("int64")).to(device)
                self._in_prompt[prompt] = True

    @staticmethod
    def is_needed(generate: Generate) -> bool:
        sampling = generate.sampling
        return bool(sampling.logit_bias or generate.min_output_tokens or _penalises(sampling))

    def observe(self, token_ids: Sequence[int]) -> None:
        """Committed output. Rejected drafts never come here."""
        self._observed += len(token_ids)
        if self._counts is not None:
            _count(self._counts, token_ids)

    def shape(self, logits: torch.Tensor, first_column: int, drafts: Sequence[int]) -> torch.Tensor:
        """The logits from which to draw, fp32 [columns, vocab] as `logits`.

        Column `first_column` + c judges its token as if `drafts[:first_column + c]` were committed:
        it is only looked at if they are.
        """
        shaped = logits.clone()
        if len(self._bias_ids):
            shaped[:, self._bias_ids] += self._bias
        short = self._min_tokens - self._observed - first_column  # columns too early to stop
        if short > 0 and len(self._stop_ids):
            shaped[:short, self._stop_ids] = -torch.inf
        if self._counts is not None:
            self._penalise(shaped, first_column, drafts)
        return shaped

    def _penalise(self, shaped: torch.Tensor, first_column: int, drafts: Sequence[int]) -> None:
        assert self._counts is not None
        assert self._in_prompt is not None
        sampling = self._sampling
        counts = self._counts.clone()
        _count(counts, drafts[:first_column])
        for i_row, row in enumerate(shaped):
            if i_row:
                counts[drafts[first_column + i_row - 1]] += 1
            seen = counts > 0
            if sampling.repetition_penalty != 1.0:
                weakened = torch.where(
                    row > 0, row / sampling.repetition_penalty, row * sampling.repetition_penalty
                )
                row.copy_(torch.where(seen | self._in_prompt, weakened, row))
            row -= sampling.frequency_penalty * counts
            row -= sampling.presence_penalty * seen


def _penalises(sampling: Sampling) -> bool:
    return (
        sampling.presence_penalty != 0
        or sampling.frequency_penalty != 0
        or sampling.repetition_penalty != 1.0
    )


def _count(counts: torch.Tensor, token_ids: Sequence[int]) -> None:
    if token_ids:
        ids = torch.tensor(token_ids, device=counts.device)
        counts.index_add_(0, ids, torch.ones(len(token_ids), device=counts.device))
