"""What a model folder holds, from its headers alone: no weight is read."""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from services.engine.checkpoint.folder import disk_errors
from services.engine.models.config import LlamaConfig, parse_config, read_json
from services.engine.models.tensor_index import TensorInfo, read_index
from shared.errors import CheckpointError

DRAFTER_PREFIXES = ("mtp.", "model.mtp.")


@dataclass(frozen=True)
class Description:
    folder: Path
    config: LlamaConfig
    parameters: int  # without the drafter's
    weight_bytes: int  # likewise
    dtypes: tuple[str, ...]
    tensors: dict[str, TensorInfo]
    special_tokens: dict[str, int]  # text to id
    has_tokenizer: bool
    has_chat_template: bool
    drafters: tuple[str, ...]

    def as_json(self) -> dict[str, Any]:
        config = self.config
        return {
            "folder": str(self.folder),
            "family": config.family,
            "layers": config.layers,
            "hidden_size": config.hidden_size,
            "intermediate_size": config.intermediate_size,
            "heads": config.heads,
            "kv_heads": config.kv_heads,
            "head_dim": config.head_dim,
            "vocab_size": config.vocab_size,
            "tied_head": config.tied_head,
            "max_context": config.max_context,
            "kv_bytes_per_token_bf16": 4 * config.layers * config.kv_heads * config.head_dim,
            "parameters": self.parameters,
            "weight_bytes": self.weight_bytes,
            "dtypes": list(self.dtypes),
            "tensors": len(self.tensors),
            "bos_token_id": config.bos_token_id,
            "eos_token_ids": list(config.eos_token_ids),
            "special_tokens": self.special_tokens,
            "chat_template": self.has_chat_template,
            "drafters": list(self.drafters),
        }


def describe(folder: Path) -> Description:
    """Reads config.json, the headers of the weights and the tokenizer's added tokens.

    Raises:
        CheckpointError: the folder or one of these files is missing or damaged.
    """
    if not folder.is_dir():
        raise CheckpointError(f"{folder} is not a folder")
    config = parse_config(folder)
    tensors = read_index(folder)
    has_tokenizer = (folder / "tokenizer.json").is_file()
    own = [info for name, info in tensors.items() if not name.startswith(DRAFTER_PREFIXES)]
    return Description(
        folder=folder,
        config=config,
        parameters=sum(info.elements for info in own),
        weight_bytes=sum(info.bytes for info in own),
        dtypes=tuple(sorted({info.dtype for info in tensors.values()})),
        tensors=tensors,
        special_tokens=_special_tokens(folder / "tokenizer.json") if has_tokenizer else {},
        has_tokenizer=has_tokenizer,
        has_chat_template=_has_template(folder),
        drafters=drafters(tensors),
    )


def drafters(names: Iterable[str]) -> tuple[str, ...]:
    """The neural drafters whose weights are among the tensors."""
    found = any(name.startswith(DRAFTER_PREFIXES) for name in names)
    return ("mtp",) if found else ()


def _special_tokens(path: Path) -> dict[str, int]:
    added = read_json(path).get("added_tokens") or []
    if not isinstance(added, list):
        raise CheckpointError(f"{path}: added_tokens is not a list")
    try:
        return {str(entry["content"]): int(entry["id"]) for entry in added if entry["special"]}
    except (KeyError, TypeError, ValueError) as exc:
        raise CheckpointError(f"{path}: an added token lacks its id, content or kind") from exc


def _has_template(folder: Path) -> bool:
    if (folder / "chat_template.jinja").is_file():
        return True
    path = folder / "tokenizer_config.json"
    with disk_errors(path):
        return path.is_file() and "chat_template" in json.loads(path.read_text(encoding="utf-8"))
