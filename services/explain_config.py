"""`ninfer-explain`'s options, held to what ninfer-serve accepts."""

import dataclasses
import os
from dataclasses import dataclass, replace
from pathlib import Path

from services.engine import config as engine_config
from services.engine.config import EngineConfig
from shared import options
from shared.errors import ConfigError
from shared.messages import EngineLimits
from shared.options import option

OF_A_SERVER = ("url", "api_key", "request")
OF_BOTH = ("json",)


@dataclass(frozen=True)
class ExplainConfig:
    model: Path | None = option(
        None, "folder of the checkpoint; its tokenizer and template are read", group="Replay a body"
    )
    body: Path | None = option(None, "the request's JSON body; - reads standard input")
    output: Path | None = option(
        None, "a file with the answer's text; - reads standard input, if --body does not"
    )
    protocol: str = option(
        "chat", "what the body is", choices=("chat", "responses", "messages", "completions")
    )
    url: str = option(
        "http://127.0.0.1:8080/v1", "a running server, for --request", group="Ask a server"
    )
    api_key: str | None = option(None, "the key of the server at --url; also NINFER_API_KEY")
    request: str | None = option(
        None,
        "id of a request that ended at --url, as log and reply name it; "
        "a server keeps its last --draft-records",
    )
    ngram_draft_tokens: int = option(
        15, "widest copy, 1..63 tokens; 0 only with --lookup-ngram", group="Replay a body"
    )
    ngram_policy: str = option("adaptive", "how copies are chosen", choices=("fixed", "adaptive"))
    ngram_min_match: int | None = option(None, "shortest match, as ninfer-serve takes it")
    lookup_ngram: int = option(0, "tokens looked up in rounds without a copy, as ninfer-serve's")
    column_cost: float = option(
        0.007,
        "what the adaptive policy is told that a column costs, 0..1 passes of one column; "
        "a server measures its own",
    )
    json: bool = option(False, "print the record as JSON", group="Output")


def resolve(config: ExplainConfig) -> ExplainConfig:
    """With the key from the environment.

    Raises:
        ConfigError: an option is missing, out of range or of no effect beside the others.
    """
    if config.request is not None:
        _without_effect(config, OF_A_SERVER, "replays; --request shows what a server did")
        if not config.request:
            raise ConfigError("--request is empty; give the id that log and reply name")
        if not config.url.startswith(("http://", "https://")):
            raise ConfigError(f"--url {config.url} does not begin with http:// or https://")
        return replace(config, api_key=config.api_key or os.environ.get("NINFER_API_KEY") or None)
    served = tuple(name for name in options.flags(ExplainConfig) if name not in OF_A_SERVER)
    _without_effect(config, served, "asks a server; it needs --request")
    if config.model is None or config.body is None or config.output is None:
        raise ConfigError("give --model, --body and --output, or --request of a running server")
    if str(config.body) == str(config.output) == "-":
        raise ConfigError("--body and --output cannot both read standard input; give one a file")
    if not 0 <= config.column_cost <= 1:
        raise ConfigError(f"--column-cost {config.column_cost} is out of range; use 0 to 1")
    if config.ngram_policy == "fixed":
        _without_effect(
            config,
            tuple(name for name in options.flags(ExplainConfig) if name != "column_cost"),
            "is for --ngram-policy adaptive",
        )
    drafting(config)
    return config


def drafting(config: ExplainConfig) -> EngineLimits:
    """What an engine with these options would draft. Raises ConfigError: out of range."""
    if not config.ngram_draft_tokens and not config.lookup_ngram:
        raise ConfigError("--ngram-draft-tokens 0 drafts nothing; use 1 to 63, or --lookup-ngram")
    engine = EngineConfig(
        model=Path(),
        sockets=Path(),
        ngram_draft_tokens=config.ngram_draft_tokens,
        ngram_policy=config.ngram_policy,
        ngram_min_match=config.ngram_min_match,
        lookup_ngram=config.lookup_ngram,
    )
    limits, _ = engine_config.resolve(engine, model_id="", model_context=1)
    return limits


def _without_effect(config: ExplainConfig, effective: tuple[str, ...], why: str) -> None:
    """Raises ConfigError: an option that is not among the `effective` has been given."""
    flags = options.flags(ExplainConfig)
    for field in dataclasses.fields(ExplainConfig):
        given = getattr(config, field.name) != field.default
        if given and field.name not in (*effective, *OF_BOTH):
            raise ConfigError(f"{flags[field.name]} {why}")
