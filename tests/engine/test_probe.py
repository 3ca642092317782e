"""The probe sees what width does to the bits."""

from pathlib import Path

import numpy as np
import pytest
import torch

from kernels import attention, pairs
from kernels.arrays import array
from services.engine.kv import KvCache
from services.engine.models import llama
from services.engine.models.load import load_model
from services.engine.models.tiny import write_tiny
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


@pytest.mark.parametrize("head_dim", [16, 8], ids=["attention by kernel", "by torch"])
def test_passes_are_exact_on_a_cpu_that_has_no_bf16_products(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, head_dim: int
) -> None:
    monkeypatch.setattr(pairs, "are_there", lambda: False)
    write_tiny(tmp_path / "tiny", head_dim=head_dim)
    model, kv = made(tmp_path / "tiny", torch.bfloat16)
    assert not any(block.kernels_alone for block in model.blocks)
    assert is_exact(model, kv)


def test_one_bit_in_wide_passes_is_noticed(
    tiny_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    attend = attention.PassAttention.attend

    def rounded_otherwise(
        self: attention.PassAttention,
        qkv: np.ndarray,
        keys: np.ndarray,
        values: np.ndarray,
    ) -> np.ndarray:
        mixed = attend(self, qkv, keys, values)
        if len(qkv) > 2:
            array(mixed)[-1, 0] += 1
        return mixed

    monkeypatch.setattr(attention.PassAttention, "attend", rounded_otherwise)
    assert not is_exact(*made(tiny_model, torch.bfloat16))
