import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from services.engine.models.load import load_model
from services.engine.models.tiny import write_tiny
from services.engine.models.weights import Weights
from shared.errors import CheckpointError
from tests.engine.models.oracle import CPU, load, make_kv, random_ids, run


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_tiny(tmp_path / "model")
    return tmp_path / "model"


def rewrite(folder: Path, **changes: torch.Tensor | None) -> None:
    tensors = load_file(folder / "model.safetensors") | changes
    kept = {name: tensor for name, tensor in tensors.items() if tensor is not None}
    save_file(kept, folder / "model.safetensors")


def shard(folder: Path) -> dict[str, str]:
    """Splits the weights into two files; returns the index's weight_map."""
    tensors = load_file(folder / "model.safetensors")
    places = {name: f"part-{i % 2}.safetensors" for i, name in enumerate(tensors)}
    for part in set(places.values()):
        save_file({n: t for n, t in tensors.items() if places[n] == part}, folder / part)
    (folder / "model.safetensors").unlink()
    write_index(folder, places)
    return places


def write_index(folder: Path, places: object) -> None:
    text = json.dumps({"weight_map": places})
    (folder / "model.safetensors.index.json").write_text(text)


def refusal(folder: Path) -> str:
    with pytest.raises(CheckpointError) as refused:
        load_model(folder, dtype=torch.float32, device=CPU)
    assert "\n" not in str(refused.value)
    return str(refused.value)


def test_sharded_weights_load_as_one_file_does(folder: Path) -> None:
    ids = random_ids(20, 320)
    whole = load(folder)
    expected = run(whole, make_kv(whole), (0, 0, ids)).logits
    shard(folder)
    model = load(folder)
    assert torch.equal(run(model, make_kv(model), (0, 0, ids)).logits, expected)


@pytest.mark.parametrize("name", ["../part-0.safetensors", "/etc/passwd", "weights.bin"])
def test_an_index_cannot_point_outside_its_folder_or_at_a_pickle(folder: Path, name: str) -> None:
    write_index(folder, shard(folder) | {"model.norm.weight": name})
    assert name in refusal(folder)


def test_a_missing_shard_and_a_missing_index_are_named(folder: Path) -> None:
    shard(folder)
    (folder / "part-1.safetensors").unlink()
    assert "part-1.safetensors is missing" in refusal(folder)
    (folder / "model.safetensors.index.json").unlink()
    assert "holds no model.safetensors" in refusal(folder)


@pytest.mark.parametrize("places", [None, [], {"a": 1}])
def test_a_malformed_index_is_refused(folder: Path, places: object) -> None:
    shard(folder)
    write_index(folder, places)
    assert "weight_map" in refusal(folder)


def test_a_missing_a_misshapen_and_an_unknown_tensor_are_named(folder: Path) -> None:
    whole = (folder / "model.safetensors").read_bytes()
    for name, tensor, said in [
        ("model.norm.weight", None, "has no tensor"),
        ("model.norm.weight", torch.zeros(63), "[63], not [64]"),
        ("model.norm.weight", torch.zeros(64, dtype=torch.int64), "not a float"),
        ("model.layers.0.self_attn.q_norm.weight", torch.zeros(16), "does not use"),
        ("model.layers.2.mlp.up_proj.weight", torch.zeros(1), "does not use"),
    ]:
        (folder / "model.safetensors").write_bytes(whole)
        rewrite(folder, **{name: tensor})
        message = refusal(folder)
        assert said in message
        assert name in message


def test_a_drafters_tensors_are_left_for_it(folder: Path) -> None:
    rewrite(folder, **{"mtp.fc.weight": torch.zeros(2, 2)})
    assert load(folder).parameters == 64 * 320 + 2 * (64 * (64 + 32 + 32 + 64 + 3 * 96) + 128) + 64


def test_a_truncated_file_is_refused(folder: Path) -> None:
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-4])
    assert "model.safetensors is damaged" in refusal(folder)


def test_weights_come_in_the_type_that_is_asked_for(folder: Path) -> None:
    weights = Weights(folder)
    one = weights.take("model.norm.weight", (64,), torch.float32)
    assert torch.equal(one, load_file(folder / "model.safetensors")["model.norm.weight"])
    half = weights.take("model.norm.weight", (64,), torch.bfloat16)
    assert half.dtype == torch.bfloat16
