"""Which tensors a model folder holds and in which file, from the headers alone."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from math import prod
from pathlib import Path

from safetensors import SafetensorError, safe_open

from services.engine.models.config import read_json
from shared.errors import CheckpointError

WHOLE = "model.safetensors"
DRAFTER = "mtp.safetensors"  # may lie beside the model's own files
SHARDED = "model.safetensors.index.json"
ITEM_BYTES = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2, "I64": 8, "I32": 4, "U8": 1, "I8": 1}


@dataclass(frozen=True)
class TensorInfo:
    file: Path
    dtype: str  # as safetensors spells it: F32, BF16, ...
    shape: tuple[int, ...]

    @property
    def elements(self) -> int:
        return prod(self.shape)

    @property
    def bytes(self) -> int:
        return self.elements * ITEM_BYTES[self.dtype]


def read_index(folder: Path) -> dict[str, TensorInfo]:
    """Every tensor of the folder by name. The library checks each header against its file's size.

    Raises:
        CheckpointError: there are no weights, or a file is missing, truncated or malformed.
    """
    found: dict[str, TensorInfo] = {}
    for path in _files(folder):
        with safetensors_errors(path), safe_open(path, framework="np") as file:
            for name in file.keys():  # noqa: SIM118 - not a dict
                part = file.get_slice(name)
                dtype = part.get_dtype()
                if dtype not in ITEM_BYTES:
                    raise CheckpointError(f"{path}: {name} is of the unsupported type {dtype}")
                if name in found:
                    raise CheckpointError(f"{path} holds {name}, which an earlier file holds too")
                found[name] = TensorInfo(path, dtype, tuple(part.get_shape()))
    return found


@contextmanager
def safetensors_errors(path: Path) -> Iterator[None]:
    """Translates the library's errors into a sentence that names the file."""
    try:
        yield
    except FileNotFoundError as exc:
        raise CheckpointError(f"{path} is missing") from exc
    except OSError as exc:
        raise CheckpointError(f"cannot read {path}: {exc.strerror or exc}") from exc
    except SafetensorError as exc:
        raise CheckpointError(f"{path} is damaged: {exc}") from exc


def _files(folder: Path) -> list[Path]:
    beside = [folder / DRAFTER] if (folder / DRAFTER).is_file() else []
    if (folder / WHOLE).is_file():
        return [folder / WHOLE, *beside]
    index = folder / SHARDED
    if not index.is_file():
        raise CheckpointError(f"{folder} holds no {WHOLE}")
    places = read_json(index).get("weight_map")
    if not isinstance(places, dict) or not all(isinstance(v, str) for v in places.values()):
        raise CheckpointError(f"{index}: weight_map is not an object of file names")
    names = sorted({*places.values(), *(path.name for path in beside)})
    for name in names:
        if Path(name).name != name or not name.endswith(".safetensors"):
            raise CheckpointError(f"{index} names {name!r}, which is no file of this folder")
    return [folder / name for name in names]
