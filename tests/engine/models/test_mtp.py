"""The MTP module against transformers' generic one, and against itself."""

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM
from transformers.cache_utils import DynamicCache
from transformers.modeling_layers import MtpModel

from services.engine.batch import RowSpan
from services.engine.kv import KvCache
from services.engine.models.llama import LlamaModel
from services.engine.models.mtp import MtpModule, has_mtp, has_shortlist
from services.engine.models.tiny import write_tiny, write_tiny_mtp
from services.engine.models.weights import Weights
from shared.errors import CheckpointError
from tests.engine.models.oracle import load, random_ids, relative_error, run

FP32 = 1e-5
RENAMED = {
    "mtp.fc": "eh_proj",
    "mtp.pre_fc_norm_embedding": "enorm",
    "mtp.pre_fc_norm_hidden": "hnorm",
    "mtp.norm": "post_norm",
    "mtp.layers.0": "mtp_block",
}


def make(folder: Path, *, shortlist: bool = False, slots: int = 1) -> tuple[MtpModule, KvCache]:
    model = load(folder)
    kv = KvCache(
        model.config,
        slots=slots,
        max_context=256,
        dtype=model.dtype,
        device=model.device,
        drafter_layers=1,
    )
    return MtpModule(model, Weights(folder), shortlist=shortlist), kv


def folder_with(tmp_path: Path, **changes: Any) -> Path:
    write_tiny(tmp_path / "model", **changes)
    write_tiny_mtp(tmp_path / "model", seed=5, shortlist=(2, 5, 40, 300))
    return tmp_path / "model"


def oracle(folder: Path, hidden: torch.Tensor, next_ids: torch.Tensor) -> torch.Tensor:
    """[T, hidden] of transformers' module over one row from position 0 on."""
    main = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    main.config.num_mtp_layers = 1
    main.config.mtp_layer_types = ["full_attention"]
    module = MtpModel(main, 1)
    renamed = {}
    for name, tensor in load_file(folder / "mtp.safetensors").items():
        for ours, theirs in RENAMED.items():
            if name.startswith(f"{ours}."):
                renamed[f"layers.0.{theirs}{name.removeprefix(ours)}"] = tensor
    found = module.load_state_dict(renamed, strict=False)
    assert not found.unexpected_keys
    assert not [k for k in found.missing_keys if k.startswith("layers.")]
    with torch.inference_mode():
        out: torch.Tensor = module.forward_layer(
            0,
            hidden[None],
            torch.arange(len(hidden))[None],
            DynamicCache(),
            input_ids=next_ids[None],
        )
    return out[0]


def hidden_of(model: LlamaModel, kv: KvCache, ids: torch.Tensor) -> torch.Tensor:
    return run(model, kv, (0, 0, ids)).hidden


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"tie_word_embeddings": False, "rms_norm_eps": 1e-6},
        {"hidden_size": 72, "num_attention_heads": 9, "num_key_value_heads": 3, "head_dim": 8},
        {"attention_bias": True, "mlp_bias": True},
        {"rope_theta": 500000.0, "num_key_value_heads": 4},
    ],
    ids=lambda changes: "-".join(changes) or "tiny",
)
def test_fp32_states_and_drafts_equal_those_of_transformers(
    tmp_path: Path, changes: dict[str, Any]
) -> None:
    folder = folder_with(tmp_path, **changes)
    module, kv = make(folder)
    model = load(folder)
    ids = random_ids(91, model.config.vocab_size)
    hidden = hidden_of(model, kv, ids[:-1])
    stepped = module.step(hidden, ids[1:], (RowSpan(0, 0, 90, 0),), kv.layers[-1])
    expected = oracle(folder, hidden, ids[1:])
    assert relative_error(stepped, expected) < FP32
    assert torch.equal(module.draft(stepped), model.head(expected).argmax(-1))


def test_columns_that_were_only_remembered_serve_as_well_as_computed_ones(tmp_path: Path) -> None:
    folder = folder_with(tmp_path)
    module, kv = make(folder, slots=2)
    ids = random_ids(71, 320)
    hidden = hidden_of(load(folder), kv, ids[:-1])
    layer = kv.layers[-1]
    whole = module.step(hidden, ids[1:], (RowSpan(0, 0, 70, 0),), layer)
    module.remember(hidden[:40], ids[1:41], (RowSpan(1, 0, 40, 0),), layer)
    module.remember(hidden[40:69], ids[41:70], (RowSpan(1, 40, 29, 0),), layer)
    last = module.step(hidden[69:], ids[70:], (RowSpan(1, 69, 1, 0),), layer)
    assert relative_error(last[0], whole[69]) < FP32


def test_rows_of_one_step_do_not_see_each_other(tmp_path: Path) -> None:
    folder = folder_with(tmp_path)
    module, kv = make(folder, slots=2)
    ids = random_ids(41, 320)
    hidden = hidden_of(load(folder), kv, ids[:-1])
    layer = kv.layers[-1]
    alone = module.step(hidden, ids[1:], (RowSpan(0, 0, 40, 0),), layer)
    states = torch.cat((hidden[:10], hidden))
    behind = torch.cat((ids[1:11], ids[1:]))
    rows = (RowSpan(1, 0, 10, 0), RowSpan(0, 0, 40, 10))
    together = module.step(states, behind, rows, layer)
    assert relative_error(together[10:], alone) < FP32
    assert relative_error(together[:10], alone[:10]) < FP32


def test_a_shortlist_drafts_the_likeliest_of_its_tokens(tmp_path: Path) -> None:
    folder = folder_with(tmp_path)
    module, kv = make(folder, shortlist=True)
    full, _ = make(folder)
    ids = random_ids(41, 320)
    hidden = hidden_of(load(folder), kv, ids[:-1])
    stepped = module.step(hidden, ids[1:], (RowSpan(0, 0, 40, 0),), kv.layers[-1])
    listed = torch.tensor([2, 5, 40, 300])
    expected = listed[full.logits(stepped)[:, listed].argmax(-1)]
    assert torch.equal(module.draft(stepped), expected)


def test_a_folder_says_whether_it_has_a_drafter_and_a_shortlist(tmp_path: Path) -> None:
    write_tiny(tmp_path / "plain")
    assert not has_mtp(Weights(tmp_path / "plain"))
    write_tiny_mtp(tmp_path / "plain")
    assert has_mtp(Weights(tmp_path / "plain"))
    assert not has_shortlist(Weights(tmp_path / "plain"))
    assert has_shortlist(Weights(folder_with(tmp_path)))


def test_a_shortlist_beyond_the_vocabulary_is_refused(tmp_path: Path) -> None:
    write_tiny(tmp_path)
    write_tiny_mtp(tmp_path, shortlist=(1, 320))
    with pytest.raises(CheckpointError, match="beyond the vocabulary of 320"):
        make(tmp_path, shortlist=True)
