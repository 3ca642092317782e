"""A tiny random llama folder, for tests and trials that need no real model.

python -m services.engine.models.tiny DIR
"""

import json
import sys
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

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


def _random_weights(config: dict[str, Any], seed: int) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)

    def random(*shape: int) -> torch.Tensor:
        # wide enough that attention and the logits are far from uniform
        scale: float = 1.5 * shape[-1] ** -0.5
        return torch.randn(shape, generator=generator) * scale

    def norm() -> torch.Tensor:
        return 1 + 0.1 * torch.randn(hidden, generator=generator)

    hidden, inner = config["hidden_size"], config["intermediate_size"]
    queries = config["num_attention_heads"] * config["head_dim"]
    keys = config["num_key_value_heads"] * config["head_dim"]
    tensors = {"model.embed_tokens.weight": random(config["vocab_size"], hidden)}
    for layer in range(config["num_hidden_layers"]):
        prefix = f"model.layers.{layer}"
        tensors[f"{prefix}.input_layernorm.weight"] = norm()
        tensors[f"{prefix}.post_attention_layernorm.weight"] = norm()
        sizes = {
            "self_attn.q_proj": (queries, hidden),
            "self_attn.k_proj": (keys, hidden),
            "self_attn.v_proj": (keys, hidden),
            "self_attn.o_proj": (hidden, queries),
            "mlp.gate_proj": (inner, hidden),
            "mlp.up_proj": (inner, hidden),
            "mlp.down_proj": (hidden, inner),
        }
        for part, (rows, columns) in sizes.items():
            tensors[f"{prefix}.{part}.weight"] = random(rows, columns)
            if config["attention_bias" if part.startswith("self_attn") else "mlp_bias"]:
                tensors[f"{prefix}.{part}.bias"] = 0.1 * random(rows)
    tensors["model.norm.weight"] = norm()
    if not config["tie_word_embeddings"]:
        tensors["lm_head.weight"] = random(config["vocab_size"], hidden)
    return tensors


def _write_json(path: Path, values: dict[str, Any]) -> None:
    path.write_text(json.dumps(values, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    write_tiny(Path(sys.argv[1]))
