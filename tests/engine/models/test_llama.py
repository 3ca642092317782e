from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from kernels import attention, pairs
from services.engine.kv import UNIT_TOKENS
from services.engine.models import llama
from services.engine.models.attention import FUSED_TOKENS
from services.engine.models.tiny import write_tiny
from services.engine.prefix_blocks import BLOCK_TOKENS
from tests.engine.models.oracle import (
    load,
    make_kv,
    oracle_logits,
    random_ids,
    relative_error,
    run,
)

FP32 = 1e-5  # relative; two orders of summation of the same fp32 products
LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}


@pytest.fixture(scope="module", params=[16, 8], ids=["kernel", "torch"])
def tiny_model(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Path:
    """Heads of 16 numbers are the CPU kernel's, of 8 plain torch's, as on a GPU."""
    folder = tmp_path_factory.mktemp("model") / "tiny"
    write_tiny(folder, head_dim=request.param)
    return folder


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"tie_word_embeddings": False},
        {"num_attention_heads": 4, "num_key_value_heads": 4},
        {"hidden_size": 72, "num_attention_heads": 9, "num_key_value_heads": 3, "head_dim": 8},
        {"hidden_size": 66, "num_attention_heads": 3, "num_key_value_heads": 1, "head_dim": 32},
        {"rope_scaling": LLAMA3},
        {"rope_theta": 500000.0, "rms_norm_eps": 1e-6},
        {"attention_bias": True, "mlp_bias": True},
        {"hidden_size": 52, "intermediate_size": 77, "num_hidden_layers": 3},
    ],
    ids=lambda changes: "-".join(changes) or "tiny",
)
def test_fp32_logits_equal_those_of_transformers(tmp_path: Path, changes: dict[str, Any]) -> None:
    write_tiny(tmp_path / "model", **changes)
    model = load(tmp_path / "model")
    ids = random_ids(150, model.config.vocab_size)
    logits = run(model, make_kv(model), (0, 0, ids)).logits
    assert logits.dtype == torch.float32
    assert relative_error(logits, oracle_logits(tmp_path / "model", ids)) < FP32


def test_prefill_in_chunks_equals_one_pass(tiny_model: Path) -> None:
    model = load(tiny_model)
    ids = random_ids(100, model.config.vocab_size)
    whole = run(model, make_kv(model), (0, 0, ids))
    kv = make_kv(model)
    cuts = [0, 1, 2, 33, 64, 99, 100]
    parts = [run(model, kv, (0, a, ids[a:b])) for a, b in pairwise(cuts)]
    assert relative_error(torch.cat([p.logits for p in parts]), whole.logits) < FP32
    assert relative_error(torch.cat([p.hidden for p in parts]), whole.hidden) < FP32


def test_rows_of_different_widths_in_one_pass_equal_each_alone(tiny_model: Path) -> None:
    model = load(tiny_model)
    prompts = [random_ids(n, model.config.vocab_size, seed=n) for n in (40, 7, 90)]
    widths = [1, 7, 16]  # columns of each in the shared pass; the middle one starts at 0
    shared = make_kv(model, slots=4)
    alone = []
    for slot, (ids, width) in enumerate(zip(prompts, widths, strict=True)):
        kv = make_kv(model)
        alone.append(run(model, kv, (0, 0, ids)).logits[-width:])
        if len(ids) > width:
            run(model, shared, (slot, 0, ids[:-width]))
    rows = [
        (slot, len(ids) - width, ids[-width:])
        for slot, (ids, width) in enumerate(zip(prompts, widths, strict=True))
    ]
    together = run(model, shared, *rows).logits.split(widths)
    for ours, reference in zip(together, alone, strict=True):
        assert relative_error(ours, reference) < FP32


@pytest.mark.parametrize("width", [1, 2, 5, 16, 63, 64])
def test_a_column_does_not_depend_on_the_width_of_its_pass(tiny_model: Path, width: int) -> None:
    model = load(tiny_model)
    ids = random_ids(64 + width, model.config.vocab_size)
    one_by_one, wide = make_kv(model), make_kv(model)
    run(model, one_by_one, (0, 0, ids[:64]))
    run(model, wide, (0, 0, ids[:64]))
    single = [
        run(model, one_by_one, (0, 64 + i, ids[64 + i : 65 + i])).logits for i in range(width)
    ]
    assert relative_error(run(model, wide, (0, 64, ids[64:])).logits, torch.cat(single)) < FP32


def test_a_pass_repeated_gives_the_same_bits(tiny_model: Path) -> None:
    model = load(tiny_model)
    ids = random_ids(30, model.config.vocab_size)
    first = run(model, make_kv(model), (0, 0, ids)).logits
    assert torch.equal(first, run(model, make_kv(model), (0, 0, ids)).logits)


def test_rejected_columns_are_overwritten_by_the_next_pass(tiny_model: Path) -> None:
    model = load(tiny_model)
    ids = random_ids(30, model.config.vocab_size)
    kv = make_kv(model)
    run(model, kv, (0, 0, ids[:20]))
    run(model, kv, (0, 20, random_ids(10, model.config.vocab_size, seed=9)))
    after = run(model, kv, (0, 21, ids[21:])).logits
    clean = make_kv(model)
    run(model, clean, (0, 0, ids[:20]))
    run(model, clean, (0, 20, random_ids(10, model.config.vocab_size, seed=9)[:1]))
    assert relative_error(after, run(model, clean, (0, 21, ids[21:])).logits) < FP32


def test_a_pass_reads_and_writes_only_the_rows_own_slot(tiny_model: Path) -> None:
    model = load(tiny_model)
    kv = make_kv(model, slots=3, max_context=40)
    for layer in kv.layers:
        for held in layer:
            held[[0, 2]] = torch.nan
    ids = random_ids(30, model.config.vocab_size)
    run(model, kv, (1, 0, ids[:10]))
    logits = run(model, kv, (1, 10, ids[10:])).logits
    assert logits.isfinite().all()
    for layer in kv.layers:
        for held in layer:
            assert held[0].isnan().all()
            assert held[2].isnan().all()
    values = kv.layers[0].values[1]
    assert values[:, :30].all()
    assert not values[:, 30:].any()


def test_contexts_beyond_the_fused_kernel_agree_with_one_pass(tiny_model: Path) -> None:
    model = load(tiny_model)
    model.exact = False  # which takes the fused kernel for short contexts
    length = FUSED_TOKENS - 2
    ids = random_ids(length + 22, model.config.vocab_size)
    whole = run(model, make_kv(model, max_context=2048), (0, 0, ids)).logits[length:]
    kv = make_kv(model, max_context=2048)
    run(model, kv, (0, 0, ids[:length]))
    cuts = [length, length + 1, length + 2, length + 3, length + 5, length + 22]
    parts = [run(model, kv, (0, a, ids[a:b])).logits for a, b in pairwise(cuts)]
    assert relative_error(torch.cat(parts), whole) < FP32


def test_whoever_moves_keys_moves_whole_units_of_the_kernel() -> None:
    assert UNIT_TOKENS == attention.UNIT
    assert BLOCK_TOKENS % attention.UNIT == 0


@pytest.mark.parametrize("tokens", [64, 90])
def test_a_copied_slot_is_as_good_as_its_origin(tiny_model: Path, tokens: int) -> None:
    model = load(tiny_model)
    ids = random_ids(100, model.config.vocab_size)
    kv = make_kv(model, slots=2)
    run(model, kv, (0, 0, ids))
    kv.copy(0, 1, tokens)
    other = random_ids(20, model.config.vocab_size, seed=1)
    clean = make_kv(model)
    run(model, clean, (0, 0, ids[:tokens]))
    assert torch.equal(
        run(model, kv, (1, tokens, other)).logits, run(model, clean, (0, tokens, other)).logits
    )


def test_only_the_wanted_columns_get_logits(tiny_model: Path) -> None:
    model = load(tiny_model)
    ids = random_ids(12, model.config.vocab_size)
    every = run(model, make_kv(model), (0, 0, ids))
    from_hidden = every.hidden @ model_head(tiny_model).T
    assert relative_error(every.logits, from_hidden) < FP32
    assert every.hidden.shape == (12, model.config.hidden_size)


@pytest.fixture(params=["as the CPU is", "no bf16 products"])
def products(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "no bf16 products":
        monkeypatch.setattr(pairs, "are_there", lambda: False)


@pytest.mark.usefixtures("products")
def test_bf16_stays_near_fp32_and_its_logits_are_not_rounded(tiny_model: Path) -> None:
    ids = random_ids(100, 320)
    exact = run(model := load(tiny_model), make_kv(model), (0, 0, ids)).logits
    model = load(tiny_model, torch.bfloat16)
    logits = run(model, make_kv(model), (0, 0, ids)).logits
    assert relative_error(logits, exact) < 0.03
    assert logits.dtype == torch.float32
    assert not torch.equal(logits, logits.bfloat16().float())


@pytest.mark.skipif(not pairs.are_there(), reason="this CPU has no AVX512_BF16")
@pytest.mark.parametrize("tokens", [1, 5, 100])
def test_a_pass_on_arrays_has_the_bits_of_one_on_tensors(
    tiny_model: Path, monkeypatch: pytest.MonkeyPatch, tokens: int
) -> None:
    model = load(tiny_model, torch.bfloat16)
    ids = random_ids(tokens, 320)
    kv, other = make_kv(model), make_kv(model)
    on_arrays = run(model, kv, (0, 0, ids))
    monkeypatch.setattr(llama, "KernelAttention", type(None))
    on_tensors = run(model, other, (0, 0, ids))
    assert torch.equal(on_arrays.logits, on_tensors.logits)
    assert torch.equal(on_arrays.hidden, on_tensors.hidden)
    assert all(
        torch.equal(a, b)
        for one, two in zip(kv.layers, other.layers, strict=True)
        for a, b in zip(one, two, strict=True)
    )


def test_weight_bytes_count_each_weight_once(tiny_model: Path) -> None:
    fp32, bf16 = load(tiny_model), load(tiny_model, torch.bfloat16)
    assert fp32.parameters == bf16.parameters
    assert fp32.weight_bytes == 4 * fp32.parameters == 2 * bf16.weight_bytes


@pytest.mark.usefixtures("products")
def test_bf16_logits_are_exact_products_of_the_final_hidden_state(tiny_model: Path) -> None:
    model = load(tiny_model, torch.bfloat16)
    found = run(model, make_kv(model), (0, 0, random_ids(40, model.config.vocab_size)))
    exact = found.hidden.double() @ model_head(tiny_model).bfloat16().double().T
    assert relative_error(found.logits, exact) < 1e-6


def model_head(folder: Path) -> torch.Tensor:
    """The tied head of the tiny model, fp32 [vocab, hidden]."""
    from_file = load_file(folder / "model.safetensors")
    return from_file["model.embed_tokens.weight"]
