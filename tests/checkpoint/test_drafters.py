"""The drafters that are part of the package."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from services.engine.checkpoint.fetch import DRAFTERS, SOURCES
from services.engine.models.mtp import has_mtp, has_shortlist
from services.engine.models.weights import Weights


def test_the_demo_models_drafter_is_small_complete_and_finite() -> None:
    path = DRAFTERS / "smollm2-135m" / "mtp.safetensors"
    assert path.stat().st_size < 12_000_000
    tensors = load_file(path)
    ids = tensors.pop("mtp.shortlist_ids")
    assert ids.tolist() == sorted(set(ids.tolist()))
    assert 0 <= int(ids[0]) <= int(ids[-1]) < 49_152
    assert tensors["mtp.fc.weight"].shape == (576, 1152)
    assert all(t.dtype == torch.bfloat16 and t.isfinite().all() for t in tensors.values())


def test_every_drafter_has_a_card_and_belongs_to_a_model_that_is_fetched() -> None:
    folders = list(DRAFTERS.iterdir())
    assert folders
    for folder in folders:
        assert folder.name in SOURCES
        card = (folder / "README.md").read_text()
        assert "ninfer-train mtp" in card
        assert "Apache-2.0" in card


@pytest.mark.real
def test_the_demo_models_folder_has_its_drafter(demo_model: Path) -> None:
    weights = Weights(demo_model)
    assert has_mtp(weights), "`make setup` puts it there"
    assert has_shortlist(weights)
