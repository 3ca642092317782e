import errno
import json
import os
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.torch import load_file
from tokenizers import Tokenizer

from services.engine.checkpoint.convert import convert, unpermute
from services.engine.checkpoint.describe import describe
from services.engine.checkpoint.folder import FILES
from services.engine.checkpoint.safetensors_writer import to_bf16
from shared.errors import CheckpointError
from tests.checkpoint.gguf_maker import HEADS, LETTERS, TOKENS, tensors, write_gguf


@pytest.fixture
def gguf(tmp_path: Path) -> Path:
    path = tmp_path / "model.gguf"
    write_gguf(path)
    return path


def refused(source: Path, folder: Path) -> str:
    """The message of the refusal, after which nothing may be left beside the source."""
    before = sorted(folder.parent.iterdir())
    with pytest.raises(CheckpointError) as refusal:
        convert(source, folder)
    assert sorted(folder.parent.iterdir()) == before
    return str(refusal.value)


def test_the_folder_holds_the_six_files_and_is_described(gguf: Path, tmp_path: Path) -> None:
    convert(gguf, tmp_path / "out")
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == sorted(FILES)
    found = describe(tmp_path / "out")
    assert found.config.family == "llama"
    assert found.config.rms_eps == 1e-5
    assert found.config.tied_head
    assert found.dtypes == ("BF16",)
    assert found.special_tokens == {"<|endoftext|>": 0, "<|im_start|>": 1, "<|im_end|>": 2}
    assert found.has_chat_template
    assert found.drafters == ()


def test_weights_keep_their_values_and_queries_their_rope_order(gguf: Path, tmp_path: Path) -> None:
    convert(gguf, tmp_path / "out")
    written = load_file(tmp_path / "out" / "model.safetensors")
    theirs = tensors()
    down = written["model.layers.1.mlp.down_proj.weight"].float().numpy()
    assert np.array_equal(down, theirs["blk.1.ffn_down.weight"])
    query = written["model.layers.0.self_attn.q_proj.weight"].float().numpy()
    packed = theirs["blk.0.attn_q.weight"]
    # llama.cpp puts row i of a head's first half at 2i and of its second half at 2i + 1
    assert np.array_equal(query[:4], packed[0:8:2])
    assert np.array_equal(query[4:8], packed[1:8:2])
    assert np.array_equal(unpermute(packed, HEADS), query)


def test_the_smollm_pre_tokenizer_splits_digits_before_spaces_are_joined(
    gguf: Path, tmp_path: Path
) -> None:
    convert(gguf, tmp_path / "out")
    tokenizer = Tokenizer.from_file(str(tmp_path / "out" / "tokenizer.json"))
    assert tokenizer.encode("ab  12<|im_end|>").tokens == ["ab", "ĠĠ", "1", "2", "<|im_end|>"]
    assert tokenizer.decode(tokenizer.encode("ab  12 é").ids) == "ab  12 é"


def test_converting_twice_gives_the_same_bytes(gguf: Path, tmp_path: Path) -> None:
    convert(gguf, tmp_path / "one")
    convert(gguf, tmp_path / "two")
    for name in FILES:
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()


def test_an_earlier_model_folder_is_replaced(gguf: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    convert(gguf, out)
    (out / "model.safetensors").write_bytes(b"broken")
    convert(gguf, out)
    assert describe(out).parameters > 0


def test_a_folder_with_other_files_is_left_alone(gguf: Path, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "thesis.tex").write_text("years of work")
    assert "thesis.tex" in refused(gguf, tmp_path / "out")
    assert (tmp_path / "out" / "thesis.tex").read_text() == "years of work"


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EIO])
def test_a_disk_that_refuses_half_way_leaves_the_earlier_folder(
    gguf: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    out = tmp_path / "out"
    convert(gguf, out)

    def write_some(path: Path, *_: object) -> None:
        path.write_bytes(b"half")
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr("services.engine.checkpoint.convert.write_bf16", write_some)
    said = refused(gguf, out)
    assert ("is full" in said) == (code != errno.EIO)
    assert describe(out).parameters > 0


@pytest.mark.parametrize("kept", [0, 3, 10, 23, 24, 100, 2000, 5000, -1, -5000])
def test_a_truncated_file_is_refused(gguf: Path, tmp_path: Path, kept: int) -> None:
    gguf.write_bytes(gguf.read_bytes()[:kept])
    assert str(gguf) in refused(gguf, tmp_path / "out")


@pytest.mark.parametrize(
    ("offset", "value"),
    [
        (0, b"JUNK"),
        (4, struct.pack("<I", 99)),
        (8, struct.pack("<Q", 1 << 60)),  # tensors
        (16, struct.pack("<Q", 1 << 60)),  # metadata pairs
        (24, struct.pack("<Q", 1 << 63)),  # the first key's length
    ],
)
def test_hostile_counts_are_refused_at_once(
    gguf: Path, tmp_path: Path, offset: int, value: bytes
) -> None:
    data = bytearray(gguf.read_bytes())
    data[offset : offset + len(value)] = value
    gguf.write_bytes(data)
    assert "damaged" in refused(gguf, tmp_path / "out")


@pytest.mark.parametrize("inner", [0, 8])  # bytes, strings
def test_an_array_longer_than_the_file_is_refused_at_once(tmp_path: Path, inner: int) -> None:
    key = b"general.tags"
    pair = struct.pack("<Q", len(key)) + key + struct.pack("<IIQ", 9, inner, 1 << 60)
    source = tmp_path / "model.gguf"
    source.write_bytes(b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + pair)
    assert "damaged" in refused(source, tmp_path / "out")


def test_a_tensor_that_ends_behind_the_file_is_refused(gguf: Path, tmp_path: Path) -> None:
    data = gguf.read_bytes()
    name = b"blk.1.ffn_down.weight"
    # behind the name: dimensions 2, sizes [64, 32], type F32, then the offset
    at = data.index(name) + len(name) + 4 + 16 + 4
    gguf.write_bytes(data[:at] + struct.pack("<Q", 1 << 40) + data[at + 8 :])
    assert "behind the end" in refused(gguf, tmp_path / "out")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"architecture": "mamba"}, "architecture mamba"),
        ({"pre": "exotic"}, "pre-tokenizer exotic"),
        ({"merges": ["a b", "z nosuchtoken"]}, "nosuchtoken"),
        ({"merges": ["ab"]}, "not a merge"),
        ({"drop": "blk.1.attn_k.weight"}, "self_attn.k_proj"),
        ({"more": lambda w: w.add_tensor("rope_freqs.weight", np.ones(4, np.float32))}, "rope_fr"),
        ({"more": lambda w: w.add_tensor("output.weight", np.ones((9, 9), np.float32))}, "output"),
    ],
)
def test_what_cannot_be_converted_is_named(
    tmp_path: Path, options: dict[str, Any], said: str
) -> None:
    write_gguf(tmp_path / "model.gguf", **options)
    assert said in refused(tmp_path / "model.gguf", tmp_path / "out")


def test_bf16_is_rounded_to_nearest_even() -> None:
    values = np.array([1.0, 1.00390625, 1.01171875, -1.0039064, 3e-39], np.float32)
    assert to_bf16(values).tolist() == [0x3F80, 0x3F80, 0x3F82, 0xBF81, 0x0021]


def test_the_config_is_what_hugging_face_loaders_expect(gguf: Path, tmp_path: Path) -> None:
    convert(gguf, tmp_path / "out")
    config = json.loads((tmp_path / "out" / "config.json").read_text())
    assert config["architectures"] == ["LlamaForCausalLM"]
    assert config["vocab_size"] == len(TOKENS) == len(LETTERS) + 5
    assert (config["bos_token_id"], config["eos_token_id"]) == (1, 2)
