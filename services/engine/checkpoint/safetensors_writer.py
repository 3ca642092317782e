"""Writing bf16 safetensors one tensor at a time, so that memory holds one, not the model."""

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np


def write_bf16(
    path: Path, shapes: dict[str, tuple[int, ...]], tensors: Iterator[tuple[str, np.ndarray]]
) -> None:
    """`tensors` yields fp32 arrays in the order of `shapes`; they are rounded to nearest even."""
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    at = 0
    for name, shape in shapes.items():
        size = 2 * int(np.prod(shape, dtype=np.int64))
        header[name] = {"dtype": "BF16", "shape": list(shape), "data_offsets": [at, at + size]}
        at += size
    head = json.dumps(header, separators=(",", ":")).encode()
    head += b" " * (-len(head) % 8)  # tensors begin at a multiple of 8
    expected = iter(shapes.items())
    with path.open("wb") as file:
        file.write(len(head).to_bytes(8, "little") + head)
        for name, values in tensors:
            assert (name, values.shape) == next(expected)
            file.write(to_bf16(values).data)
    assert next(expected, None) is None


def to_bf16(values: np.ndarray) -> np.ndarray:
    """Finite fp32 of any shape to the bits of bf16, uint16 of that shape."""
    bits = np.ascontiguousarray(values).view(np.uint32)
    odd = (bits >> 16) & 1
    rounded: np.ndarray = ((bits + np.uint32(0x7FFF) + odd) >> 16).astype("<u2")
    return rounded
