"""config.json of the llama family, parsed strictly: what is not understood stops the start."""

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shared.errors import CheckpointError

MAX_COUNT = 1 << 24  # of anything in a config; beyond it the file is damaged
TRUE_TYPES = {int: "a whole number", float: "a number", bool: "true or false", str: "a text"}


@dataclass(frozen=True)
class Llama3Scaling:
    """Rope frequencies slowed by wavelength, as Llama 3.1 does."""

    factor: float
    low_freq_factor: float
    high_freq_factor: float
    original_context: int


@dataclass(frozen=True)
class RopeConfig:
    theta: float
    scaling: Llama3Scaling | None


@dataclass(frozen=True)
class LlamaConfig:
    family: str
    vocab_size: int
    hidden_size: int
    intermediate_size: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    rms_eps: float
    rope: RopeConfig
    tied_head: bool
    attention_bias: bool  # on q, k, v and o
    mlp_bias: bool
    max_context: int
    bos_token_id: int | None
    eos_token_ids: tuple[int, ...]


def parse_config(folder: Path) -> LlamaConfig:
    """Reads `folder`/config.json.

    Raises:
        CheckpointError: missing, not JSON, or asks for what this family does not do.
    """
    path = folder / "config.json"
    fields = Fields(path, read_json(path))
    family = fields.text("model_type")
    if family != "llama":
        raise CheckpointError(f"{path}: the model type {family} is not supported; llama is")
    fields.must_be("hidden_act", "silu", ("silu", "swish"))
    if fields.raw("quantization_config") is not None:
        raise CheckpointError(f"{path}: quantised weights are not supported; use bf16 or fp32")
    heads = fields.count("num_attention_heads")
    kv_heads = fields.count("num_key_value_heads", heads)
    hidden = fields.count("hidden_size")
    if heads % kv_heads:
        raise CheckpointError(f"{path}: {kv_heads} key heads do not divide {heads} heads")
    if fields.raw("head_dim") is None and hidden % heads:
        raise CheckpointError(f"{path}: {heads} heads do not divide {hidden} dimensions")
    head_dim = fields.count("head_dim", hidden // heads)
    if head_dim % 2:
        raise CheckpointError(f"{path}: rope needs an even head_dim, not {head_dim}")
    return LlamaConfig(
        family=family,
        vocab_size=fields.count("vocab_size"),
        hidden_size=hidden,
        intermediate_size=fields.count("intermediate_size"),
        layers=fields.count("num_hidden_layers"),
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        rms_eps=fields.positive("rms_norm_eps", 1e-6),
        rope=_rope(fields),
        tied_head=fields.flag("tie_word_embeddings", default=False),
        attention_bias=fields.flag("attention_bias", default=False),
        mlp_bias=fields.flag("mlp_bias", default=False),
        max_context=fields.count("max_position_embeddings"),
        bos_token_id=fields.optional_id("bos_token_id"),
        eos_token_ids=fields.ids("eos_token_id"),
    )


def read_json(path: Path) -> dict[str, Any]:
    """One JSON object.

    Raises:
        CheckpointError: unreadable, or not an object.
    """
    try:
        values = json.loads(path.read_bytes())
    except OSError as exc:
        raise CheckpointError(f"cannot read {path}: {exc.strerror or exc}") from exc
    except (ValueError, RecursionError) as exc:
        raise CheckpointError(f"{path} is not JSON: {exc}") from exc
    if not isinstance(values, dict):
        raise CheckpointError(f"{path} is not a JSON object")
    return values


class Fields:
    """The values of a config with their types checked."""

    def __init__(self, path: Path, values: dict[str, Any]) -> None:
        self.path = path
        self._values = values

    def raw(self, key: str) -> Any:
        return self._values.get(key)

    def text(self, key: str) -> str:
        value: str = self._typed(key, str, None)
        return value

    def flag(self, key: str, *, default: bool) -> bool:
        value: bool = self._typed(key, bool, default)
        return value

    def count(self, key: str, default: int | None = None) -> int:
        value: int = self._typed(key, int, default)
        if not 1 <= value <= MAX_COUNT:
            raise CheckpointError(f"{self.path}: {key} is {value}, not a count")
        return value

    def positive(self, key: str, default: float | None = None) -> float:
        value = float(self._typed(key, float, default))
        if not (math.isfinite(value) and value > 0):
            raise CheckpointError(f"{self.path}: {key} is {value}, not a positive number")
        return value

    def optional_id(self, key: str) -> int | None:
        ids = self.ids(key)
        return ids[0] if ids else None

    def ids(self, key: str) -> tuple[int, ...]:
        """One token id, a list of them, or none."""
        value = self.raw(key)
        found = value if isinstance(value, list) else [] if value is None else [value]
        if not all(type(index) is int and index >= 0 for index in found):
            raise CheckpointError(f"{self.path}: {key} is {value}, not token ids")
        return tuple(found)

    def must_be(self, key: str, default: str, allowed: tuple[str, ...]) -> None:
        value = self._values.get(key, default)
        if value not in allowed:
            raise CheckpointError(f"{self.path}: {key} {value} is not supported; {allowed[0]} is")

    def _typed(self, key: str, kind: type, default: Any) -> Any:
        value = self._values.get(key)
        if value is None:
            if default is None:
                raise CheckpointError(f"{self.path} lacks {key}")
            return default
        accepted = (int, float) if kind is float else (kind,)
        if type(value) not in accepted:  # not isinstance: true is not a whole number
            raise CheckpointError(f"{self.path}: {key} is {value!r}, not {TRUE_TYPES[kind]}")
        return value


def _rope(fields: Fields) -> RopeConfig:
    """Both spellings: `rope_theta` beside `rope_scaling`, and `rope_parameters` with all of it."""
    path = fields.path
    given = fields.raw("rope_parameters") or fields.raw("rope_scaling") or {}
    if not isinstance(given, dict):
        raise CheckpointError(f"{path}: the rope parameters are not an object")
    inner = Fields(path, given)
    theta = inner.positive("rope_theta", fields.positive("rope_theta", 10_000.0))
    if inner.raw("partial_rotary_factor") not in (None, 1, 1.0):
        raise CheckpointError(f"{path}: rope over a part of each head is not supported")
    match given.get("rope_type", given.get("type", "default")):
        case "default":
            return RopeConfig(theta, None)
        case "llama3":
            scaling = Llama3Scaling(
                factor=inner.positive("factor"),
                low_freq_factor=inner.positive("low_freq_factor"),
                high_freq_factor=inner.positive("high_freq_factor"),
                original_context=inner.count("original_max_position_embeddings"),
            )
            if scaling.high_freq_factor <= scaling.low_freq_factor:
                raise CheckpointError(f"{path}: the llama3 rope's frequency factors are reversed")
            return RopeConfig(theta, scaling)
        case kind:
            raise CheckpointError(
                f"{path}: the rope type {kind} is not supported; default and llama3 are"
            )
