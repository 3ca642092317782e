"""The indexer's options, and the context they resolve to."""

from dataclasses import dataclass
from pathlib import Path

import msgspec

from shared.errors import ConfigError
from shared.logs import LEVELS
from shared.options import option


@dataclass(frozen=True)
class IndexerConfig:
    model: Path = option(
        help="folder of the checkpoint; only its tokenizer and config are read", group="Model"
    )
    sockets: Path = option(help="folder of the Unix sockets, mode 700", group="Processes")
    max_context: int = option(
        0,
        "tokens of derived sources per request; 0 is the model's context",
        group="Requests and memory",
    )
    log_level: str = option(
        "info", "what is logged on stderr, from this level on", choices=LEVELS, group="Observing"
    )


class _TextFacts(msgspec.Struct):
    max_position_embeddings: int | None = None


class _ModelFacts(_TextFacts):
    text_config: _TextFacts | None = None  # where multi-modal checkpoints keep theirs


def resolve_context(config: IndexerConfig) -> int:
    """The context in tokens.

    Raises:
        ConfigError: a negative option, or the model does not say.
    """
    if config.max_context < 0:
        raise ConfigError(f"--max-context {config.max_context} is out of range; use 0 or more")
    if config.max_context:
        return config.max_context
    path = config.model / "config.json"
    try:
        facts = msgspec.json.decode(path.read_bytes(), type=_ModelFacts)
    except (OSError, msgspec.DecodeError) as exc:
        raise ConfigError(f"cannot read {path}: {exc}") from exc
    for part in (facts.text_config, facts):
        if part is not None and part.max_position_embeddings:
            return part.max_position_embeddings
    raise ConfigError(f"{path} has no max_position_embeddings; set --max-context")
