"""Matrices in eight and four bits: close to the full ones, and the same bits at every width."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from services.engine.kv import KvCache
from services.engine.models.config import parse_config
from services.engine.models.int4_linear import grouped
from services.engine.models.int8_linear import Int8Linear, check_int8
from services.engine.models.linear import Linear, linear
from services.engine.models.load import load_model
from services.engine.models.weight_form import Matrices, WeightForm, resolve_form
from services.engine.models.weights import Weights
from services.engine.probe import is_exact
from shared.errors import ConfigError
from tests.engine.local import LocalEngine, generate

CPU = torch.device("cpu")
FORMS: tuple[WeightForm, ...] = ("int8", "int4")
SHAPES = [(64, 64), (96, 160), (960, 576), (576, 1536)]
CLOSE = {"int8": 0.02, "int4": 0.12}  # relative, of random weights; measured 0.011 and 0.084


def random(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).bfloat16()


def error(ours: torch.Tensor, wanted: torch.Tensor) -> float:
    return float((ours.float() - wanted).norm() / wanted.norm())


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("shape", SHAPES)
def test_a_layer_says_about_what_the_full_one_says(
    form: WeightForm, shape: tuple[int, int]
) -> None:
    weight, bias, x = random(*shape), random(shape[0], seed=1), random(7, shape[1], seed=2)
    residual = random(7, shape[0], seed=3)
    wanted = x.float() @ weight.float().t() + bias.float()
    layer = linear(weight, bias, CPU, form)
    assert layer(x).dtype == layer.onto(residual, x).dtype == torch.bfloat16
    assert error(layer(x), wanted) < CLOSE[form]
    assert error(layer.onto(residual, x), wanted + residual.float()) < CLOSE[form]


def widths(layer: Linear, x: torch.Tensor, residual: torch.Tensor, width: int) -> torch.Tensor:
    """All columns in passes of so many, both ways of calling side by side."""
    parts = zip(x.split(width), residual.split(width), strict=True)
    return torch.cat([torch.cat((layer(p), layer.onto(r, p)), -1) for p, r in parts])


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("has_bias", [True, False])
def test_a_token_has_the_same_bits_in_passes_of_every_width(
    form: WeightForm, shape: tuple[int, int], has_bias: bool
) -> None:
    layer = linear(random(*shape), random(shape[0], seed=1) if has_bias else None, CPU, form)
    # columns of very different sizes, so that none may depend on another's
    x = random(130, shape[1], seed=2) * torch.logspace(-3, 3, 130)[:, None].bfloat16()
    residual = random(130, shape[0], seed=3)
    whole = widths(layer, x, residual, 130)
    for width in (1, 2, 3, 7, 16, 33, 64, 100):
        assert torch.equal(widths(layer, x, residual, width), whole), width


@pytest.mark.parametrize("form", FORMS)
def test_zeros_stay_zeros(form: WeightForm) -> None:
    weight = random(32, 64)
    weight[3] = 0
    x = random(3, 64, seed=1)
    x[1] = 0
    out = linear(weight, None, CPU, form)(x)
    assert torch.isfinite(out).all()
    assert not out[1].any()
    assert not out[:, 3].any()


def test_weights_on_sixteen_steps_keep_their_levels() -> None:
    """As those of GGUF's Q4_1 blocks are, whose scale and offset are fp16."""
    generator = torch.Generator().manual_seed(0)
    levels = torch.randint(0, 16, (64, 8, 32), generator=generator)
    levels[..., 0], levels[..., 1] = 0, 15  # a block reaches both its ends
    step = (torch.rand(64, 8, 1, generator=generator) * 0.02 + 0.001).half().float()
    low = (-8 * step * (1 + 0.1 * torch.randn(64, 8, 1, generator=generator))).half().float()
    exact = (levels * step + low).flatten(1)
    found, scale, zero = grouped(exact.bfloat16())
    assert torch.equal(found, levels.flatten(1).to(torch.int32))
    kept = (found.view(64, 8, 32) - 8) * scale.float()[..., None] + zero.float()[..., None]
    assert error(kept.flatten(1), exact) < 0.003


def test_what_the_matrices_take_is_what_is_counted() -> None:
    levels, scale, zero = grouped(random(96, 160))
    matrices = Matrices(((96, 160),))
    full = 2 * 96 * 160
    held = levels.numel() // 2 + scale.nbytes + zero.nbytes  # two levels a byte
    assert matrices.saved_bytes("int4", 2) == full - held
    assert matrices.saved_bytes("int8", 2) == full - 96 * (160 + 4)  # a row has an fp32 scale
    assert matrices.saved_bytes("full", 2) == 0


def test_a_model_counts_its_bytes(tiny_model: Path) -> None:
    def load(form: WeightForm) -> int:
        return load_model(tiny_model, dtype=torch.bfloat16, device=CPU, form=form).weight_bytes

    full, int8, int4 = load("full"), load("int8"), load("int4")
    config = parse_config(tiny_model)
    weights = sum(o * i for o, i in Matrices.of(config).shapes)
    assert full > int8 > int4
    assert 0 < full - int8 < weights
    assert full - int4 == 2 * weights - weights // 2 - weights // 32 * 4


@pytest.mark.parametrize("form", FORMS)
def test_the_model_is_exact_with_them(tiny_model: Path, form: WeightForm) -> None:
    model = load_model(tiny_model, dtype=torch.bfloat16, device=CPU, form=form)
    assert model.weight_form == form
    kv = KvCache(model.config, slots=1, max_context=128, dtype=torch.bfloat16, device=CPU)
    assert is_exact(model, kv)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_copies_change_no_token(tiny_model: Path, form: WeightForm, temperature: float) -> None:
    engine = LocalEngine(tiny_model, dtype=torch.bfloat16, form=form)
    prompt = engine.tokenizer.encode_text("one two three four five " * 8)
    request = generate("r", prompt, output=120, temperature=temperature)
    plain = engine.run([request], width=0)["r"]
    copied = engine.run([request], width=15)["r"]
    assert copied.token_ids == plain.token_ids
    if temperature == 0:
        assert copied.accepted > 0


def test_a_folder_hands_out_full_matrices_unless_told(tiny_model: Path) -> None:
    assert Weights(tiny_model).form == "full"
    assert load_model(tiny_model, dtype=torch.float32, device=CPU).weight_form == "full"


@pytest.mark.parametrize(
    ("name", "dtype", "device", "said"),
    [
        ("int8", torch.float32, "cpu", "--weights int8 goes with --dtype bfloat16 only"),
        ("int4", torch.float32, "cpu", "--weights int4 goes with --dtype bfloat16 only"),
        ("bf16", torch.float32, "cpu", "--weights bf16 goes with --dtype bfloat16 only"),
        ("int8", torch.bfloat16, "cuda", "--weights int8 goes with --device cpu only"),
        ("int4", torch.bfloat16, "cuda", "--weights int4 goes with --device cpu only"),
        ("int2", torch.bfloat16, "cpu", "--weights int2 is not known; use auto, bf16, int8, int4"),
    ],
)
def test_what_does_not_go_together_is_refused(
    name: str, dtype: torch.dtype, device: str, said: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        resolve_form(name, dtype=dtype, device=torch.device(device))
    assert str(refused.value) == said


def test_the_full_form_goes_with_everything() -> None:
    for dtype in (torch.bfloat16, torch.float32):
        for device in ("cpu", "cuda"):
            assert resolve_form("auto", dtype=dtype, device=torch.device(device)) == "full"
    bf16 = resolve_form("bf16", dtype=torch.bfloat16, device=torch.device("cuda"))
    assert bf16 == "full"


@pytest.mark.parametrize(("inner", "head_dim"), [(100, 16), (96, 18)])
def test_matrices_that_fill_no_groups_are_refused(
    tiny_model: Path, inner: int, head_dim: int
) -> None:
    config = replace(parse_config(tiny_model), intermediate_size=inner, head_dim=head_dim)
    matrices = Matrices.of(config)
    with pytest.raises(ConfigError, match=r"16 x 32.*use --weights int8"):
        matrices.check("int4")
    matrices.check("int8")


def test_a_kernel_that_does_not_sum_exactly_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    check_int8()
    ours = Int8Linear.__call__
    monkeypatch.setattr(Int8Linear, "__call__", lambda self, x: ours(self, x) - 1)
    with pytest.raises(ConfigError, match="does not sum exactly"):
        check_int8()
