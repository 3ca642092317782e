"""Reading a GGUF file that nobody vouches for.

The gguf package's own reader trusts every length it meets (a hostile array count keeps it busy for
years) and spends seconds on a vocabulary, so the header is parsed here with a check of each read;
the package keeps what it is good at, the arithmetic of the quantised blocks.
"""

import mmap
import struct
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType
from gguf.quants import dequantize

from services.engine.checkpoint.folder import disk_errors
from shared.errors import CheckpointError

MAX_DIMENSIONS = 4
STRING, ARRAY = 8, 9
SCALARS = {
    0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f",
    7: "<?", 10: "<Q", 11: "<q", 12: "<d",
}  # fmt: skip


class TensorEntry(NamedTuple):
    kind: GGMLQuantizationType
    shape: tuple[int, ...]  # rows first, the reverse of the file's order
    begin: int  # bytes [begin, end) of the file
    end: int


class GgufFile:
    """`metadata` (numbers, strings, lists) and `tensors` of a memory-mapped file."""

    def __init__(self, path: Path) -> None:
        """Raises `CheckpointError`: unreadable, not GGUF version 2 or 3, truncated, malformed."""
        self.path = path
        with disk_errors(path), path.open("rb") as file:
            if file.seek(0, 2) < 24:
                raise CheckpointError(f"{path} is not a GGUF file: too short")
            self._data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        self._at = 0
        try:
            self._parse()
        except (ValueError, KeyError, struct.error) as exc:
            raise CheckpointError(f"{path} is a damaged GGUF file: {exc}") from exc

    def floats(self, name: str) -> np.ndarray:
        """The tensor as fp32 in its `shape`, dequantised.

        Raises:
            CheckpointError: there is no such tensor, or its type is not supported.
        """
        if name not in self.tensors:
            raise CheckpointError(f"{self.path} has no tensor {name}")
        entry = self.tensors[name]
        stored = np.frombuffer(self._data, np.uint8, entry.end - entry.begin, entry.begin)
        if entry.kind == GGMLQuantizationType.F32:
            return stored.view(np.float32).reshape(entry.shape)
        try:
            values: np.ndarray = dequantize(stored.reshape(*entry.shape[:-1], -1), entry.kind)
        except NotImplementedError as exc:
            raise CheckpointError(
                f"{self.path}: tensors of type {entry.kind.name} are not supported"
            ) from exc
        return values.astype(np.float32, copy=False)

    def _parse(self) -> None:
        if self._take(4) != b"GGUF":
            raise ValueError("it does not begin with GGUF")
        version = self._scalar("<I")
        if version not in (2, 3):
            raise ValueError(f"version {version} is not 2 or 3")
        tensor_count, pair_count = self._scalar("<Q"), self._scalar("<Q")
        self.metadata: dict[str, Any] = {}
        for _ in range(pair_count):
            key = self._string()
            if key in self.metadata:
                raise ValueError(f"the key {key} appears twice")
            self.metadata[key] = self._value(self._scalar("<I"))
        entries = {}
        for _ in range(tensor_count):
            name = self._string()
            if name in entries:
                raise ValueError(f"the tensor {name} appears twice")
            entries[name] = self._entry()
        align = self.metadata.get("general.alignment", 32)
        if not isinstance(align, int) or align < 1 or align & (align - 1):
            raise ValueError(f"the alignment {align} is not a power of two")
        base = -(-self._at // align) * align
        self.tensors = {
            name: entry._replace(begin=base + entry.begin, end=base + entry.end)
            for name, entry in entries.items()
        }
        for name, entry in self.tensors.items():
            if entry.end > len(self._data):
                raise ValueError(f"the tensor {name} ends behind the end of the file")

    def _entry(self) -> TensorEntry:
        rank = self._scalar("<I")
        if not 1 <= rank <= MAX_DIMENSIONS:
            raise ValueError(f"a tensor has {rank} dimensions")
        shape = tuple(reversed([self._scalar("<Q") for _ in range(rank)]))
        kind = GGMLQuantizationType(self._scalar("<I"))
        begin = self._scalar("<Q")
        per_block, block_bytes = GGML_QUANT_SIZES[kind]
        if shape[-1] % per_block:
            raise ValueError(f"a row of {shape[-1]} does not fill blocks of {per_block}")
        elements = 1
        for size in shape:
            elements *= size
        return TensorEntry(kind, shape, begin, begin + elements // per_block * block_bytes)

    def _value(self, kind: int, depth: int = 0) -> Any:
        if kind == STRING:
            return self._string()
        if kind != ARRAY:
            return self._scalar(SCALARS[kind])
        if depth:
            raise ValueError("an array of arrays")
        inner, count = self._scalar("<I"), self._scalar("<Q")
        if inner in SCALARS:
            width = struct.calcsize(SCALARS[inner])
            return np.frombuffer(self._take(count * width), SCALARS[inner][1:]).tolist()
        if count * 8 > len(self._data) - self._at:  # a string is at least its 8-byte length
            raise ValueError(f"an array of {count} entries does not fit in the file")
        return [self._value(inner, depth + 1) for _ in range(count)]

    def _string(self) -> str:
        return self._take(self._scalar("<Q")).decode("utf-8")

    def _scalar(self, form: str) -> Any:
        return struct.unpack(form, self._take(struct.calcsize(form)))[0]

    def _take(self, count: int) -> bytes:
        end = self._at + count
        if end > len(self._data):
            raise ValueError(f"it ends after {len(self._data)} bytes, inside a field")
        piece = self._data[self._at : end]
        self._at = end
        return piece
