import json
from pathlib import Path
from typing import Any

import pytest

from services.engine.models.config import Llama3Scaling, parse_config
from services.engine.models.tiny import TINY_CONFIG
from shared.errors import CheckpointError


def write(folder: Path, **changes: Any) -> Path:
    config = {key: value for key, value in (TINY_CONFIG | changes).items() if value != "drop"}
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def test_optional_fields_take_the_familys_defaults(tmp_path: Path) -> None:
    dropped = ("head_dim", "num_key_value_heads", "attention_bias", "tie_word_embeddings")
    config = parse_config(write(tmp_path, **dict.fromkeys(dropped, "drop")))
    assert (config.head_dim, config.kv_heads) == (16, 4)
    assert not config.attention_bias
    assert not config.tied_head


def test_both_spellings_of_rope_are_read(tmp_path: Path) -> None:
    scaling = {
        "rope_type": "llama3",
        "factor": 8,
        "low_freq_factor": 1,
        "high_freq_factor": 4,
        "original_max_position_embeddings": 64,
    }
    old = parse_config(write(tmp_path, rope_theta=5e5, rope_scaling=scaling)).rope
    parameters = scaling | {"rope_theta": 5e5}
    new = parse_config(write(tmp_path, rope_theta="drop", rope_parameters=parameters)).rope
    assert old == new
    assert old.theta == 5e5
    assert old.scaling == Llama3Scaling(8.0, 1.0, 4.0, 64)


def test_several_end_tokens_are_kept_in_order(tmp_path: Path) -> None:
    assert parse_config(write(tmp_path, eos_token_id=[7, 2])).eos_token_ids == (7, 2)
    assert parse_config(write(tmp_path, eos_token_id=None)).eos_token_ids == ()


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("model_type", "mamba"),
        ("hidden_act", "gelu"),
        ("quantization_config", {"quant_method": "gptq"}),
        ("num_hidden_layers", 0),
        ("num_hidden_layers", -3),
        ("num_hidden_layers", 1 << 40),
        ("num_hidden_layers", 2.0),
        ("num_hidden_layers", True),
        ("num_hidden_layers", "2"),
        ("num_hidden_layers", "drop"),
        ("vocab_size", "drop"),
        ("num_key_value_heads", 3),
        ("head_dim", 15),
        ("rms_norm_eps", -1e-5),
        ("rms_norm_eps", float("nan")),
        ("tie_word_embeddings", 1),
        ("eos_token_id", "</s>"),
        ("eos_token_id", [1, -1]),
        ("rope_scaling", {"rope_type": "yarn", "factor": 4.0}),
        ("rope_scaling", {"rope_type": "llama3"}),
        ("rope_scaling", "linear"),
        ("rope_parameters", {"rope_theta": 1e4, "partial_rotary_factor": 0.5}),
        ("rope_theta", 0),
    ],
)
def test_what_is_not_understood_is_one_sentence_with_the_files_name(
    tmp_path: Path, key: str, value: Any
) -> None:
    with pytest.raises(CheckpointError, match=r"config\.json") as refusal:
        parse_config(write(tmp_path, **{key: value}))
    assert "\n" not in str(refusal.value)
