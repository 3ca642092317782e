"""From one GGUF file to a model folder that every Hugging Face style loader reads."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from services.engine.checkpoint.folder import appearing
from services.engine.checkpoint.gguf_file import GgufFile
from services.engine.checkpoint.metadata import Metadata
from services.engine.checkpoint.safetensors_writer import write_bf16
from services.engine.checkpoint.tokenizer_files import write_tokenizer
from services.engine.models.config import parse_config
from services.engine.models.projections import layer_projections
from shared.errors import CheckpointError

# GGUF's name of each part of a layer, and ours.
LAYER_PARTS = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
WHOLE_PARTS = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
}

# called with (tensors done, tensors in all)
Progress = Callable[[int, int], None]


def convert(source: Path, folder: Path, progress: Progress = lambda done, total: None) -> None:
    """Writes `folder`, whole or not at all; memory holds one tensor at a time.

    Raises:
        CheckpointError: the file is damaged or of an unsupported kind, or the disk refuses.
    """
    file = GgufFile(source)
    metadata = Metadata(file.metadata)
    config = model_config(metadata, tied="output.weight" not in file.tensors)
    names = tensor_names(file, config)
    with appearing(folder) as draft:
        _write_json(draft / "config.json", config)
        parse_config(draft)  # what was written must load: heads that divide, sane counts
        special = ("bos_token_id", "eos_token_id", "pad_token_id")
        generation = {key: config[key] for key in special if key in config}
        _write_json(draft / "generation_config.json", generation)
        write_tokenizer(metadata, draft)
        shapes = {ours: file.tensors[theirs].shape for theirs, ours in names.items()}
        tensors = _tensors(file, names, config, progress)
        write_bf16(draft / "model.safetensors", shapes, tensors)


def model_config(metadata: Metadata, *, tied: bool) -> dict[str, Any]:
    """The config.json of the model.

    Raises:
        CheckpointError: the architecture or its rope scaling cannot be converted.
    """
    kind = metadata.architecture
    if kind != "llama":
        raise CheckpointError(f"the GGUF architecture {kind} cannot be converted; llama can")
    scaling = metadata.optional_string("llama.rope.scaling.type")
    if scaling not in (None, "none"):
        raise CheckpointError(f"the GGUF rope scaling {scaling} cannot be converted")
    heads = metadata.int("llama.attention.head_count")
    hidden = metadata.int("llama.embedding_length")
    if not heads or hidden % heads:
        raise CheckpointError(f"{heads} attention heads do not divide {hidden} dimensions")
    head_dim = metadata.optional_int("llama.attention.key_length") or hidden // heads
    if metadata.optional_int("llama.rope.dimension_count") not in (None, head_dim):
        raise CheckpointError("rope over a part of each head cannot be converted")
    config: dict[str, Any] = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": len(metadata.strings("tokenizer.ggml.tokens")),
        "hidden_size": hidden,
        "intermediate_size": metadata.int("llama.feed_forward_length"),
        "num_hidden_layers": metadata.int("llama.block_count"),
        "num_attention_heads": heads,
        "num_key_value_heads": metadata.optional_int("llama.attention.head_count_kv") or heads,
        "head_dim": head_dim,
        "hidden_act": "silu",
        "max_position_embeddings": metadata.int("llama.context_length"),
        "rms_norm_eps": _shortest(metadata.number("llama.attention.layer_norm_rms_epsilon")),
        "rope_theta": _shortest(metadata.number("llama.rope.freq_base")),
        "attention_bias": False,
        "mlp_bias": False,
        "tie_word_embeddings": tied,
        "torch_dtype": "bfloat16",
    }
    for ours, theirs in (("bos", "bos"), ("eos", "eos"), ("pad", "padding")):
        index = metadata.optional_int(f"tokenizer.ggml.{theirs}_token_id")
        if index is not None:
            config[f"{ours}_token_id"] = index
    return config


def tensor_names(file: GgufFile, config: dict[str, Any]) -> dict[str, str]:
    """GGUF's name of each tensor to ours, in the file's order.

    Raises:
        CheckpointError: a tensor has no place in a llama, is missing, or has a wrong shape.
    """
    names = {}
    for name in file.tensors:
        ours = WHOLE_PARTS.get(name) or _layer_name(name)
        if ours is None:
            raise CheckpointError(f"the GGUF tensor {name} has no place in a llama model")
        names[name] = ours
    wanted = _expected_shapes(config)
    for ours, shape in wanted.items():
        if ours not in names.values():
            raise CheckpointError(f"{file.path} has no tensor for {ours}")
        theirs = next(key for key, value in names.items() if value == ours)
        if file.tensors[theirs].shape != shape:
            found = list(file.tensors[theirs].shape)
            raise CheckpointError(f"the GGUF tensor {theirs} is {found}, not {list(shape)}")
    extra = next((theirs for theirs, ours in names.items() if ours not in wanted), None)
    if extra is not None:
        raise CheckpointError(f"the GGUF tensor {extra} has no place in this model")
    return names


def unpermute(rows: np.ndarray, heads: int) -> np.ndarray:
    """Rows of q or k [heads * head_dim, hidden] from llama.cpp's rope order (pairs side by side)
    to the halves that rotate-half rope expects."""
    grouped = rows.reshape(heads, -1, 2, rows.shape[-1])
    return grouped.swapaxes(1, 2).reshape(rows.shape)


def _layer_name(name: str) -> str | None:
    match name.split("."):
        case ["blk", index, part, "weight"] if index.isdecimal() and part in LAYER_PARTS:
            return f"model.layers.{int(index)}.{LAYER_PARTS[part]}.weight"
        case _:
            return None


def _expected_shapes(config: dict[str, Any]) -> dict[str, tuple[int, ...]]:
    hidden, inner = config["hidden_size"], config["intermediate_size"]
    queries = config["num_attention_heads"] * config["head_dim"]
    keys = config["num_key_value_heads"] * config["head_dim"]
    shapes: dict[str, tuple[int, ...]] = {
        "input_layernorm": (hidden,),
        "post_attention_layernorm": (hidden,),
        **layer_projections(hidden=hidden, inner=inner, queries=queries, keys=keys),
    }
    whole: dict[str, tuple[int, ...]] = {
        "model.embed_tokens.weight": (config["vocab_size"], hidden),
    }
    whole["model.norm.weight"] = (hidden,)
    if not config["tie_word_embeddings"]:
        whole["lm_head.weight"] = (config["vocab_size"], hidden)
    for layer in range(config["num_hidden_layers"]):
        for part, shape in shapes.items():
            whole[f"model.layers.{layer}.{part}.weight"] = shape
    return whole


def _tensors(
    file: GgufFile, names: dict[str, str], config: dict[str, Any], progress: Progress
) -> Iterator[tuple[str, np.ndarray]]:
    for done, (theirs, ours) in enumerate(names.items()):
        progress(done, len(names))
        values = file.floats(theirs)
        if not np.isfinite(values).all():
            raise CheckpointError(f"the GGUF tensor {theirs} holds a number that is not finite")
        if ours.endswith("q_proj.weight"):
            values = unpermute(values, config["num_attention_heads"])
        elif ours.endswith("k_proj.weight"):
            values = unpermute(values, config["num_key_value_heads"])
        yield ours, values
    progress(len(names), len(names))


def _shortest(value: float) -> float:
    """GGUF stores fp32: 1e-05 comes back as 9.999999747378752e-06. This undoes it."""
    return float(str(np.float32(value)))


def _write_json(path: Path, values: dict[str, Any]) -> None:
    path.write_text(json.dumps(values, indent=2) + "\n", encoding="utf-8")
