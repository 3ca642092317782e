"""Tiny GGUF files made by the gguf package, whole or damaged on purpose."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
from gguf import GGUFWriter
from tokenizers import pre_tokenizers

HEADS, KV_HEADS, HEAD_DIM, HIDDEN, INNER, LAYERS = 4, 2, 8, 32, 64, 2
LETTERS = sorted(pre_tokenizers.ByteLevel.alphabet())
TOKENS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", *LETTERS, "ab", "ĠĠ"]
MERGES = ["a b", "Ġ Ġ"]

Change = Callable[[GGUFWriter], None]


def write_gguf(
    path: Path,
    *,
    architecture: str = "llama",
    pre: str = "smollm",
    merges: list[str] | None = None,
    drop: str | None = None,
    more: Change = lambda writer: None,
) -> None:
    """A two-layer random llama of fp32; `drop` leaves out one tensor, `more` adds what it likes."""
    writer = GGUFWriter(path, architecture)
    writer.add_block_count(LAYERS)
    writer.add_context_length(128)
    writer.add_embedding_length(HIDDEN)
    writer.add_feed_forward_length(INNER)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_rope_freq_base(10000.0)
    writer.add_rope_dimension_count(HEAD_DIM)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre)
    writer.add_token_list(TOKENS)
    writer.add_token_types([3, 3, 3] + [1] * (len(TOKENS) - 3))
    writer.add_token_merges(MERGES if merges is None else merges)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_chat_template("{{ messages[0]['content'] }}")
    for name, values in tensors().items():
        if name != drop:
            writer.add_tensor(name, values)
    more(writer)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def tensors() -> dict[str, np.ndarray]:
    """GGUF names to fp32 weights whose values are bf16 already, so that nothing is rounded."""
    random = np.random.default_rng(0)

    def draw(*shape: int) -> np.ndarray:
        values = random.standard_normal(shape).astype(np.float32)
        return (values.view(np.uint32) & np.uint32(0xFFFF0000)).view(np.float32)

    found = {"token_embd.weight": draw(len(TOKENS), HIDDEN), "output_norm.weight": draw(HIDDEN)}
    shapes = {
        "attn_norm": (HIDDEN,),
        "attn_q": (HEADS * HEAD_DIM, HIDDEN),
        "attn_k": (KV_HEADS * HEAD_DIM, HIDDEN),
        "attn_v": (KV_HEADS * HEAD_DIM, HIDDEN),
        "attn_output": (HIDDEN, HEADS * HEAD_DIM),
        "ffn_norm": (HIDDEN,),
        "ffn_gate": (INNER, HIDDEN),
        "ffn_up": (INNER, HIDDEN),
        "ffn_down": (HIDDEN, INNER),
    }
    for layer in range(LAYERS):
        for part, shape in shapes.items():
            found[f"blk.{layer}.{part}.weight"] = draw(*shape)
    return found
