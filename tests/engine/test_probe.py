"""The probe sees what width does to the bits."""

from pathlib import Path

import pytest
import torch

from services.engine.kv import KvCache, LayerKv
from services.engine.models import llama
from services.engine.models.attention import AttentionPlan
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
    attend = llama.attend

    def rounded_otherwise(
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        plan: AttentionPlan,
        kv: LayerKv,
    ) -> torch.Tensor:
        mixed = attend(query, key, value, plan, kv)
        if len(query) > 2:
            mixed[-1, 0] += 0.01
        return mixed

    monkeypatch.setattr(llama, "attend", rounded_otherwise)
    assert not is_exact(*made(tiny_model, torch.bfloat16))
