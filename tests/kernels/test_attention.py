"""The attention kernel against plain torch, and bit by bit against itself."""

from collections.abc import Sequence
from itertools import accumulate

import numpy as np
import pytest
import torch

from kernels import pair_attention, pairs
from kernels.attention import PassAttention, fits
from kernels.attention.reference import attention_reference
from kernels.compiled import SHARED_OPERATIONS
from kernels.pair_attention.reference import pair_attention_reference
from kernels.units import UNIT
from tests.kernels.tolerance import TOLERANCE, relative_error

CAPACITY = 7 * UNIT
POISON = 2.0**100  # exact in bf16


class Text:
    """Random queries, keys and values of one row, and what its columns should get."""

    def __init__(
        self, tokens: int, dtype: torch.dtype, *, heads: int = 9, kv_heads: int = 3, dim: int = 64
    ) -> None:
        generator = torch.Generator().manual_seed(tokens)
        size = (heads + 2 * kv_heads) * dim
        self.heads, self.kv_heads, self.dim, self.dtype = heads, kv_heads, dim, dtype
        self.qkv = (2 * torch.randn(tokens, size, generator=generator)).to(dtype)
        turns = torch.rand(tokens, dim // 2, generator=generator) * 6
        self.cos, self.sin = turns.cos(), turns.sin()

    def reference(self) -> torch.Tensor:
        sizes = {"heads": self.heads, "kv_heads": self.kv_heads}
        by_pairs = pair_attention.fits(self.dtype)
        reference = pair_attention_reference if by_pairs else attention_reference
        return reference(self.qkv, self.cos, self.sin, **sizes)

    def cache(self, slots: int = 1) -> tuple[torch.Tensor, torch.Tensor]:
        """Poisoned: what was never written may be read, with weight 0."""
        size = (slots, self.kv_heads, CAPACITY, self.dim)
        keys = torch.full(size, POISON, dtype=self.dtype)
        return keys, keys.clone()

    def computed(self, widths: Sequence[int], *, slot: int = 0, slots: int = 1) -> torch.Tensor:
        """In passes of these widths."""
        keys, values = self.cache(slots)
        ends = accumulate(widths)
        return torch.cat(
            [
                self.columns(slot, end - width, end).attend(
                    self.qkv[end - width : end], keys, values
                )
                for width, end in zip(widths, ends, strict=True)
            ]
        )

    def columns(self, slot: int, start: int, end: int) -> PassAttention:
        places = np.stack((np.full(end - start, slot), np.arange(start, end)), 1)
        block = np.array([(slot, start, end - start, 0)])
        cos, sin = self.cos[start:end], self.sin[start:end]
        return PassAttention(places, block, cos, sin, heads=self.heads, dtype=self.dtype)


@pytest.fixture(params=["fp32", "bf16", "bf16 in single numbers"])
def dtype(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> torch.dtype:
    if request.param == "bf16 in single numbers":  # as on a CPU that does not multiply pairs
        monkeypatch.setattr(pairs, "are_there", lambda: False)
    return torch.float32 if request.param == "fp32" else torch.bfloat16


@pytest.mark.parametrize("tokens", [1, 2, 63, 64, 65, 300])
def test_a_pass_equals_the_reference(tokens: int, dtype: torch.dtype) -> None:
    text = Text(tokens, dtype)
    out = text.computed([tokens])
    assert relative_error(out, text.reference()) < TOLERANCE[dtype]


@pytest.mark.parametrize(
    "sizes",
    [
        {"heads": 4, "kv_heads": 4, "dim": 16},
        {"heads": 5, "kv_heads": 1, "dim": 80},
        {"heads": 8, "kv_heads": 2, "dim": 128},
    ],
    ids=str,
)
def test_heads_of_other_sizes_equal_the_reference(
    sizes: dict[str, int], dtype: torch.dtype
) -> None:
    text = Text(100, dtype, **sizes)
    assert relative_error(text.computed([70, 30]), text.reference()) < TOLERANCE[dtype]


@pytest.mark.parametrize(
    "widths", [[1] * 300, [64, 1, 63, 2, 5, 165], [299, 1]], ids=["single", "mixed", "long"]
)
def test_bits_do_not_depend_on_the_width_of_passes(
    widths: Sequence[int], dtype: torch.dtype
) -> None:
    text = Text(300, dtype)
    assert torch.equal(text.computed(widths), text.computed([300]))


def test_rows_of_other_slots_change_nothing() -> None:
    one, other = Text(100, torch.bfloat16), Text(70, torch.bfloat16)
    alone = one.computed([99, 1])[-1:]
    keys, values = one.cache(slots=3)
    one.columns(2, 0, 99).attend(one.qkv[:99], keys, values)
    other.columns(0, 0, 60).attend(other.qkv[:60], keys, values)
    places = np.array([(2, 99), *((0, at) for at in range(60, 70))])
    blocks = np.array([(2, 99, 1, 0), (0, 60, 10, 1)])
    cos, sin = (
        torch.cat((a[99:], b[60:])) for a, b in ((one.cos, other.cos), (one.sin, other.sin))
    )
    both = PassAttention(places, blocks, cos, sin, heads=9, dtype=torch.bfloat16)
    out = both.attend(torch.cat((one.qkv[99:], other.qkv[60:])), keys, values)
    assert torch.equal(out[:1], alone)
    assert torch.equal(out[1:], other.computed([60, 10])[60:])
    assert (keys[1] == POISON).all()


def test_scores_far_apart_neither_overflow_nor_lose_the_largest(dtype: torch.dtype) -> None:
    text = Text(200, dtype)
    text.qkv *= 30
    out = text.computed([150, 50])
    assert out.isfinite().all()
    if dtype == torch.float32:  # bf16 rounds scores of thousands by more than the next one is away
        assert relative_error(out, text.reference()) < 1e-5


@pytest.mark.usefixtures("two_threads")
def test_threads_change_no_bit() -> None:
    text = Text(400, torch.bfloat16)
    keys, values = text.cache()
    places = np.stack((np.zeros(400, int), np.arange(400)), 1)
    blocks = np.array([(0, at, min(64, 400 - at), at) for at in range(0, 400, 64)])
    shared = PassAttention(places, blocks, text.cos, text.sin, heads=9, dtype=text.dtype)
    assert shared.products > SHARED_OPERATIONS
    out = shared.attend(text.qkv, keys, values)
    torch.set_num_threads(1)
    assert torch.equal(out, text.computed([400]))


def test_what_the_kernel_takes() -> None:
    assert fits(64, torch.bfloat16, torch.device("cpu"))
    assert not fits(64, torch.bfloat16, torch.device("cuda"))
    assert not fits(24, torch.bfloat16, torch.device("cpu"))
    assert not fits(64, torch.float16, torch.device("cpu"))
