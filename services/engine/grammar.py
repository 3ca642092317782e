"""Structured output: which tokens a grammar admits at each column, by the llguidance library."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from llguidance import LLMatcher, LLTokenizer

from shared.messages import Grammar


class GrammarCompiler:
    """Knows the vocabulary; made once, its table (0.2 s of work) when a grammar is first used."""

    def __init__(self, model_dir: Path, vocab_size: int, stop_ids: Sequence[int]) -> None:
        self._path = model_dir / "tokenizer.json"
        self._vocab_size = vocab_size
        self._stop_ids = list(stop_ids)
        self._tokenizer: LLTokenizer | None = None

    def start(self, grammar: Grammar) -> "GrammarState":
        """Raises ValueError: the library refuses the grammar."""
        if self._tokenizer is None:
            self._tokenizer = LLTokenizer(
                self._path.read_text(encoding="utf-8"),
                n_vocab=self._vocab_size,
                eos_token=self._stop_ids or None,
            )
        matcher = LLMatcher(self._tokenizer, grammar.text)
        if matcher.is_error():
            raise ValueError(matcher.get_error())
        return GrammarState(matcher, grammar.after_id, self._vocab_size)


class GrammarState:
    """Where one request stands in its grammar: behind its committed output.

    With `after_id` the grammar begins behind that token, as an answer begins behind the reasoning.
    """

    def __init__(self, matcher: LLMatcher, after_id: int | None, vocab_size: int) -> None:
        self._matcher = matcher
        self._after_id = after_id
        self._vocab_size = vocab_size
        self._active = after_id is None

    def admitted(self, drafts: Sequence[int]) -> int:
        """How many of the drafts the grammar admits: what stands behind could never be accepted."""
        start = 0
        if not self._active:
            if self._after_id not in drafts:
                return len(drafts)
            start = drafts.index(self._after_id) + 1
        admitted: int = self._matcher.validate_tokens(list(drafts[start:]))
        return start + admitted

    def mask(self, logits: torch.Tensor, first_column: int, drafts: Sequence[int]) -> None:
        """Sets what is not admitted to -inf, in place.

        Row c of `logits`, fp32 [columns, vocab], is judged as if `drafts[:first_column + c]` were
        committed; the state is afterwards as before.
        """
        was_active, steps = self._active, 0
        for token_id in drafts[:first_column]:
            steps += self._step(token_id)
        for i_row, row in enumerate(logits):
            if i_row:
                steps += self._step(drafts[first_column + i_row - 1])
            if self._active:
                row.masked_fill_(self._forbidden(row.device), -torch.inf)
        if steps:
            self._matcher.rollback(steps)
        self._active = was_active

    def observe(self, token_ids: Sequence[int]) -> None:
        """Committed output."""
        for token_id in token_ids:
            self._step(token_id)

    def _step(self, token_id: int) -> int:
        """How many tokens the matcher took."""
        if self._active:
            if self._matcher.is_stopped():
                return 0
            taken = self._matcher.consume_token(token_id)
            assert taken, f"the grammar refuses token {token_id}: {self._matcher.get_error()}"
            return 1
        self._active = token_id == self._after_id
        return 0

    def _forbidden(self, device: torch.device) -> torch.Tensor:
        """bool [vocab]"""
        bits = np.frombuffer(self._matcher.compute_bitmask(), np.uint8)
        admitted = np.unpackbits(bits, count=self._vocab_size, bitorder="little")
        return torch.from_numpy(admitted == 0).to(device)
