"""The committed tokens of one request."""

from collections.abc import Sequence

import numpy as np


class Ledger:
    """Prompt, then output; append-only, never holds a draft.

    Room for the whole request is reserved at once, so that a view stays valid while it grows.
    """

    def __init__(self, prompt_ids: np.ndarray, max_output_tokens: int) -> None:
        self.prompt_len = len(prompt_ids)
        self._tokens = np.empty(self.prompt_len + max_output_tokens, dtype=np.int32)
        self._tokens[: self.prompt_len] = prompt_ids
        self._readable = self._tokens.view()
        self._readable.flags.writeable = False
        self._len = self.prompt_len

    def __len__(self) -> int:
        return self._len

    @property
    def output_len(self) -> int:
        return self._len - self.prompt_len

    @property
    def tokens(self) -> np.ndarray:
        """int32 [len(self)], a read-only view."""
        return self._readable[: self._len]

    def append(self, token_ids: Sequence[int]) -> None:
        self._tokens[self._len : self._len + len(token_ids)] = token_ids
        self._len += len(token_ids)

    def truncate_output(self, output_len: int) -> None:
        """Forgets output tokens behind a stop string; the request ends with it."""
        assert 0 <= output_len <= self.output_len
        self._len = self.prompt_len + output_len
