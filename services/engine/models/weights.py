"""The tensors of a model folder, memory-mapped: what is not taken is not read."""

from pathlib import Path

import torch
from safetensors import safe_open

from services.engine.models.tensor_index import read_index, safetensors_errors
from services.engine.models.weight_form import WeightForm
from shared.errors import CheckpointError

FLOATS = ("F32", "F16", "BF16")


class Weights:
    """Hands out each tensor with its shape checked, and knows which nobody took."""

    def __init__(self, folder: Path, form: WeightForm = "full") -> None:
        """`form` is how whoever takes the matrices of a layer is to keep them.

        Raises:
            CheckpointError: weights missing, truncated or malformed.
        """
        self.form = form
        self._folder = folder
        self._index = read_index(folder)
        self._taken: set[str] = set()
        self._files = {}
        for path in sorted({info.file for info in self._index.values()}):
            with safetensors_errors(path):
                self._files[path] = safe_open(path, framework="pt")

    def take(self, name: str, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        """The tensor on the CPU; a view of the file where its type is `dtype` already.

        Raises:
            CheckpointError: it is missing, or of another shape or kind.
        """
        info = self._index.get(name)
        if info is None:
            raise CheckpointError(f"{self._folder} has no tensor {name}")
        if info.shape != shape:
            raise CheckpointError(f"{info.file}: {name} is {list(info.shape)}, not {list(shape)}")
        if info.dtype not in FLOATS:
            raise CheckpointError(f"{info.file}: {name} is of type {info.dtype}, not a float")
        self._taken.add(name)
        with safetensors_errors(info.file):
            tensor: torch.Tensor = self._files[info.file].get_tensor(name)  # type: ignore[no-untyped-call]
        return tensor.to(dtype)

    def take_ids(self, name: str) -> torch.Tensor:
        """A list of token ids, int64 [n].

        Raises:
            CheckpointError: it is missing, or not a list of whole numbers.
        """
        info = self._index.get(name)
        if info is None:
            raise CheckpointError(f"{self._folder} has no tensor {name}")
        if info.dtype not in ("I32", "I64") or len(info.shape) != 1:
            raise CheckpointError(f"{info.file}: {name} is not a list of whole numbers")
        self._taken.add(name)
        with safetensors_errors(info.file):
            tensor: torch.Tensor = self._files[info.file].get_tensor(name)  # type: ignore[no-untyped-call]
        return tensor.long()

    @property
    def elements(self) -> int:
        """Of all tensors that were taken."""
        return sum(self._index[name].elements for name in self._taken)

    def __contains__(self, name: str) -> bool:
        return name in self._index

    def refuse_leftovers(self, known: tuple[str, ...]) -> None:
        """Raises `CheckpointError` if a tensor was neither taken nor begins with a `known` prefix.

        A weight that the graph does not use means that the graph is not this model's.
        """
        for name in self._index:
            if name not in self._taken and not name.startswith(known):
                raise CheckpointError(
                    f"{self._folder} holds {name}, which this model family does not use"
                )
