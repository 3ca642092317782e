"""A tiny random llama folder, for tests and trials that need no real model.

python -m services.engine.models.tiny DIR
"""

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from services.engine.models.projections import layer_projections

SPECIAL_TOKENS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)

TINY_CONFIG: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "vocab_size": 320,  # 3 special tokens, 256 bytes, and some that no text ever gives
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "hidden_act": "silu",
    "max_position_embeddings": 1024,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "attention_bias": False,
    "mlp_bias": False,
    "tie_word_embeddings": True,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 2,
    "torch_dtype": "float32",
}


def write_tiny(folder: Path, *, seed: int = 0, **changes: Any) -> None:
    """Writes a model folder of fp32 random weights. `changes` are keys of its config.json.

    The same seed and changes give the same bytes.
    """
    config = TINY_CONFIG | changes
    folder.mkdir(parents=True, exist_ok=True)
    _write_json(folder / "config.json", config)
    special = ("bos_token_id", "eos_token_id", "pad_token_id")
    _write_json(folder / "generation_config.json", {key: config[key] for key in special})
    roles = {"bos_token": 1, "eos_token": 2, "pad_token": 2, "unk_token": 0}
    names = {role: SPECIAL_TOKENS[index] for role, index in roles.items()}
    tokenizer_config = {"tokenizer_class": "PreTrainedTokenizerFast", **names}
    _write_json(folder / "tokenizer_config.json", tokenizer_config)
    (folder / "chat_template.jinja").write_text(CHAT_TEMPLATE, encoding="utf-8")
    _tokenizer().save(str(folder / "tokenizer.json"))
    metadata = {"format": "pt"}
    save_file(_random_weights(config, seed), folder / "model.safetensors", metadata=metadata)


def _tokenizer() -> Tokenizer:
    """One token a byte."""
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {token: index for index, token in enumerate((*SPECIAL_TOKENS, *letters))}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_tokens([AddedToken(t, special=True, normalized=False) for t in SPECIAL_TOKENS])
    return tokenizer


def write_tiny_mtp(folder: Path, *, seed: int = 0, shortlist: Sequence[int] = ()) -> None:
    """Adds a drafter of random weights to a folder of `write_tiny`: it is hardly ever right."""
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    weights = _Weights(config, seed)
    hidden = config["hidden_size"]
    weights.add("mtp.fc", hidden, 2 * hidden)
    for name in ("pre_fc_norm_embedding", "pre_fc_norm_hidden", "norm"):
        weights.add_norm(f"mtp.{name}")
    weights.add_layer("mtp.layers.0")
    tensors = weights.tensors
    if shortlist:
        tensors["mtp.shortlist_ids"] = torch.tensor(shortlist, dtype=torch.int32)
    save_file(tensors, folder / "mtp.safetensors", metadata={"format": "pt"})


def _random_weights(config: dict[str, Any], seed: int) -> dict[str, torch.Tensor]:
    weights = _Weights(config, seed)
    weights.add("model.embed_tokens", config["vocab_size"], config["hidden_size"])
    for layer in range(config["num_hidden_layers"]):
        weights.add_layer(f"model.layers.{layer}")
    weights.add_norm("model.norm")
    if not config["tie_word_embeddings"]:
        weights.add("lm_head", config["vocab_size"], config["hidden_size"])
    return weights.tensors


class _Weights:
    """Random tensors, drawn in the order in which they are added."""

    def __init__(self, config: dict[str, Any], seed: int) -> None:
        self._config = config
        self._generator = torch.Generator().manual_seed(seed)
        self.tensors: dict[str, torch.Tensor] = {}

    def add(self, name: str, *shape: int) -> None:
        self.tensors[f"{name}.weight"] = self._random(*shape)

    def add_norm(self, name: str) -> None:
        noise = torch.randn(self._config["hidden_size"], generator=self._generator)
        self.tensors[f"{name}.weight"] = 1 + 0.1 * noise

    def add_layer(self, prefix: str) -> None:
        config = self._config
        hidden, inner = config["hidden_size"], config["intermediate_size"]
        queries = config["num_attention_heads"] * config["head_dim"]
        keys = config["num_key_value_heads"] * config["head_dim"]
        self.add_norm(f"{prefix}.input_layernorm")
        self.add_norm(f"{prefix}.post_attention_layernorm")
        sizes = layer_projections(hidden=hidden, inner=inner, queries=queries, keys=keys)
        for part, (rows, columns) in sizes.items():
            self.add(f"{prefix}.{part}", rows, columns)
            if config["attention_bias" if part.startswith("self_attn") else "mlp_bias"]:
                self.tensors[f"{prefix}.{part}.bias"] = 0.1 * self._random(rows)

    def _random(self, *shape: int) -> torch.Tensor:
        # wide enough that attention and the logits are far from uniform
        scale: float = 1.5 * shape[-1] ** -0.5
        return torch.randn(shape, generator=self._generator) * scale


def _write_json(path: Path, values: dict[str, Any]) -> None:
    path.write_text(json.dumps(values, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    write_tiny(Path(sys.argv[1]))
