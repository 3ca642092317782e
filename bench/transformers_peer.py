"""transformers' `generate` on the same weights and as many threads."""

import time
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM

from shared.template import ChatTemplate
from shared.tokenizer import Tokenizer


class TransformersPeer:
    def __init__(self, folder: Path, *, threads: int = 1) -> None:
        torch.set_num_threads(threads)
        self._tokenizer = Tokenizer.load(folder)
        self._template = ChatTemplate.load(folder, self._tokenizer)
        self._model: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16)

    def decode_speed(self, messages: list[dict[str, Any]], tokens: int, **options: Any) -> float:
        """Tokens a second, greedy, of `tokens` new ones behind the first."""
        ids = torch.from_numpy(self._template.encode(messages).astype("int64"))[None]
        first_s = self._seconds(ids, 1, options)
        whole_s = self._seconds(ids, tokens, options)
        return (tokens - 1) / (whole_s - first_s)

    def _seconds(self, ids: torch.Tensor, tokens: int, options: dict[str, Any]) -> float:
        began_s = time.perf_counter()
        with torch.inference_mode():
            output = self._model.generate(
                ids,
                attention_mask=torch.ones_like(ids),
                min_new_tokens=tokens,
                max_new_tokens=tokens,
                do_sample=False,
                pad_token_id=self._tokenizer.stop_ids[0],
                **options,
            )
        assert output.shape[1] - ids.shape[1] == tokens
        return time.perf_counter() - began_s
