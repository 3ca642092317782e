"""The probe sees what width does to the bits."""

from pathlib import Path

import pytest
import torch

from kernels import attention
from services.engine.kv import KvCache
from services.engine.models import llama
from services.engine.models.load import load_model
from services.engine.probe import is_exact

CPU = torch.device("cpu")


def made(
    folder: Path, dtype: torch.dtype, *, context: int = 128
) -> tuple[llama.LlamaModel, KvCache]:
    model = load_model(folder, dtype=dtype, device=CPU)
    return model, KvCache(model.config, slots=1, max_context=context, dtype=dtype, device=CPU)


@pytest.mark.parametrize("context", [16, 64, 128])
def test_passes_of_the_tiny_model_are_exact(tiny_model: Path, context: int) -> None:
    assert is_exact(*made(tiny_model, torch.bfloat16, context=context))


def test_one_bit_in_wide_passes_is_noticed(
    tiny_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    attend = attention.PassAttention.attend

    def rounded_otherwise(
        self: attention.PassAttention,
        qkv: torch.Tensor,
        keys: torch.Tensor,
        values: torch.Tensor,
    ) -> torch.Tensor:
        mixed = attend(self, qkv, keys, values)
        if len(qkv) > 2:
            mixed[-1, 0] += 0.01
        return mixed

    monkeypatch.setattr(attention.PassAttention, "attend", rounded_otherwise)
    assert not is_exact(*made(tiny_model, torch.bfloat16))
