"""In which form a model's matrices lie in memory."""

from dataclasses import dataclass
from typing import Literal

import torch

from services.engine.models.config import LlamaConfig
from services.engine.models.projections import layer_projections
from shared.errors import ConfigError

WeightForm = Literal["full", "int8", "int4"]
FORMS: dict[str, WeightForm] = {"auto": "full", "bf16": "full", "int8": "int8", "int4": "int4"}

GROUP = 32  # weights of a row that share a scale in int4, as GGUF's blocks of four bits
INT4_ROWS = 16  # what torch's kernel takes at once
SCALE_BYTES = 4  # int8: fp32 a row; int4: bf16 scale and zero a group


@dataclass(frozen=True)
class Matrices:
    """The projections of a model's layers."""

    shapes: tuple[tuple[int, int], ...]  # (outputs, inputs)

    @classmethod
    def of(cls, config: LlamaConfig) -> "Matrices":
        layer = layer_projections(
            hidden=config.hidden_size,
            inner=config.intermediate_size,
            queries=config.heads * config.head_dim,
            keys=config.kv_heads * config.head_dim,
        )
        return cls(tuple(layer.values()) * config.layers)

    def saved_bytes(self, form: WeightForm, element_bytes: int) -> int:
        """By keeping them in `form` in place of `element_bytes` for each weight."""
        if form == "full":
            return 0
        full = sum(outputs * inputs for outputs, inputs in self.shapes) * element_bytes
        return full - sum(_bytes(form, *shape) for shape in self.shapes)

    def check(self, form: WeightForm) -> None:
        """Raises ConfigError: the sizes do not suit the form."""
        if form != "int4":
            return
        for outputs, inputs in self.shapes:
            if inputs % GROUP or outputs % INT4_ROWS:
                raise ConfigError(
                    f"--weights int4 needs matrices of whole groups ({INT4_ROWS} x {GROUP}), and "
                    f"this model has one of {outputs} x {inputs}; use --weights int8"
                )


def resolve_form(name: str, *, dtype: torch.dtype, device: torch.device) -> WeightForm:
    """What `--weights` asks for.

    Raises:
        ConfigError: unknown, or not with this type or device.
    """
    if name not in FORMS:
        raise ConfigError(f"--weights {name} is not known; use {', '.join(FORMS)}")
    if name == "auto":
        return "full"
    if dtype != torch.bfloat16:
        raise ConfigError(f"--weights {name} goes with --dtype bfloat16 only")
    if name != "bf16" and device.type != "cpu":
        raise ConfigError(f"--weights {name} goes with --device cpu only")
    return FORMS[name]


def _bytes(form: WeightForm, outputs: int, inputs: int) -> int:
    if form == "int8":
        return outputs * (inputs + SCALE_BYTES)
    return outputs * (inputs // 2 + inputs // GROUP * SCALE_BYTES)
