"""The engine's options, and their resolution against what the model turned out to be."""

from dataclasses import dataclass
from pathlib import Path

from shared.errors import ConfigError
from shared.logs import LEVELS
from shared.messages import EngineLimits
from shared.options import option

MAX_NGRAM_DRAFT_TOKENS = 63
MAX_DRAFT_TOKENS = 15
DRAFT_TOKENS, COPY_TOKENS = 3, 15  # defaults where there is a drafter
MAX_CONCURRENCY = 64
DEFAULT_MIN_MATCH = {"fixed": 12, "adaptive": 1}
# Without a neural drafter its window stands open to `--lookup-ngram`: as wide as is usual for one.
LOOKUP_TOKENS = 5


@dataclass(frozen=True)
class EngineConfig:
    model: Path = option(
        help="folder of the checkpoint, as `ninfer-model fetch` prints it", group="Model"
    )
    sockets: Path = option(help="folder of the Unix sockets, mode 700", group="Processes")
    device: str = option("cpu", "where the model runs", choices=("cpu", "cuda"), group="Model")
    dtype: str = option(
        "auto",
        "weights and KV; auto is bfloat16",
        choices=("auto", "bfloat16", "float32"),
    )
    weights: str = option(
        "auto",
        "the layers' matrices: auto and bf16 as they are; int8 with activations, half the memory, "
        "wide passes faster; int4 a third of it, only passes of few columns faster",
        choices=("auto", "bf16", "int8", "int4"),
    )
    exact: str = option(
        "auto",
        "passes of every width give the same bits, so drafts never change a token; "
        "auto: if this machine's kernels can",
        choices=("auto", "on", "off"),
    )
    threads: int = option(0, "CPU threads of the model; 0 is one fewer than the cores, at least 1")
    max_concurrency: int = option(
        4, "requests that decode at once, 1..64", group="Requests and memory"
    )
    max_waiting: int = option(16, "requests that may wait for a row; more are answered with 429")
    max_context: int = option(
        0, "tokens of a request's prompt and output together; 0 is the model's own limit"
    )
    prefill_chunk: int = option(512, "prompt tokens computed in one pass, all requests together")
    host_cache_mib: int = option(
        1024,
        "main memory for the KV of prefixes whose slot was taken over, 0 is off; committed as used",
    )
    spec: str = option(
        "off",
        "neural drafter, which lies beside the model; copies are on with it",
        choices=("off", "mtp", "dflash", "dflash2"),
        group="Neural drafter",
    )
    draft_tokens: int | None = option(
        None, "neural drafts of a round, 1..15; default 3 with a drafter"
    )
    adaptive_mtp: bool = option(False, "ask for fewer neural drafts where more do not pay")
    lm_head_draft: bool = option(False, "draft from the checkpoint's shortlist of tokens alone")
    ngram_draft_tokens: int | None = option(
        None,
        "widest copy, 0..63 tokens; 0 is off; default 15 with a drafter, else 0",
        group="Copies",
    )
    ngram_policy: str = option(
        "adaptive",
        "adaptive weighs the evidence for a copy against its cost, fixed asks for one match length",
        choices=("fixed", "adaptive"),
    )
    ngram_min_match: int | None = option(
        None,
        "shortest match that licenses a copy, 4..64 tokens; default 12 if fixed, none if adaptive",
    )
    lookup_ngram: int = option(
        0,
        "in rounds without a copy, draft what followed the last N tokens when they stood there "
        "before; N is 2..64, 0 is off",
    )
    ngram_archive_mib: int = option(
        0,
        "memory for texts that sessions retain, MiB; 0 is off; needs --ngram-draft-tokens",
        group="Sessions",
    )
    log_level: str = option(
        "info", "what is logged on stderr, from this level on", choices=LEVELS, group="Observing"
    )


def resolve(
    config: EngineConfig, *, model_id: str, model_context: int, drafters: tuple[str, ...] = ()
) -> tuple[EngineLimits, int]:
    """The limits in force and the context in tokens. `drafters` are those that the model has.

    Raises:
        ConfigError: an option is out of range or asks for what this model lacks.
    """
    _within("--max-concurrency", config.max_concurrency, 1, MAX_CONCURRENCY)
    _within("--max-waiting", config.max_waiting, 0, 10_000)
    _within("--prefill-chunk", config.prefill_chunk, 16, 65_536)
    if config.ngram_min_match is not None:
        _within("--ngram-min-match", config.ngram_min_match, 4, 64)
    if config.lookup_ngram:
        _within("--lookup-ngram", config.lookup_ngram, 2, 64, off=True)
    _within("--host-cache-mib", config.host_cache_mib, 0, 1 << 20)
    if config.max_context:
        _within("--max-context", config.max_context, 16, model_context)
    neural = _neural_width(config, model_id, drafters)
    width = config.ngram_draft_tokens
    if width is None:
        width = COPY_TOKENS if neural else 0
    _within("--ngram-draft-tokens", width, 0, MAX_NGRAM_DRAFT_TOKENS)
    if config.ngram_archive_mib and not width:
        raise ConfigError(
            "--ngram-archive-mib needs copies to serve: set --ngram-draft-tokens, for example 15"
        )
    limits = EngineLimits(
        max_concurrency=config.max_concurrency,
        max_waiting=config.max_waiting,
        spec=config.spec,
        draft_tokens=neural or (LOOKUP_TOKENS if config.lookup_ngram else 0),
        ngram_draft_tokens=width,
        ngram_policy="fixed" if config.ngram_policy == "fixed" else "adaptive",
        ngram_min_match=config.ngram_min_match or DEFAULT_MIN_MATCH[config.ngram_policy],
        lookup_ngram=config.lookup_ngram,
        host_cache_mib=config.host_cache_mib,
        ngram_archive_mib=config.ngram_archive_mib,
    )
    return limits, config.max_context or model_context


def _neural_width(config: EngineConfig, model_id: str, drafters: tuple[str, ...]) -> int:
    """Neural drafts of a round; 0 without a drafter."""
    if config.spec == "off":
        for flag, value in (
            ("--draft-tokens", config.draft_tokens),
            ("--adaptive-mtp", config.adaptive_mtp),
            ("--lm-head-draft", config.lm_head_draft),
        ):
            if value:
                raise ConfigError(f"{flag} needs a neural drafter: set --spec, for example mtp")
        return 0
    if config.spec not in drafters:
        raise ConfigError(
            f"--spec {config.spec}: {model_id} has no such drafter; "
            "use --spec off (copies work alone: --ngram-draft-tokens 15)"
        )
    width = DRAFT_TOKENS if config.draft_tokens is None else config.draft_tokens
    _within("--draft-tokens", width, 1, MAX_DRAFT_TOKENS)
    return width


def _within(flag: str, value: int, low: int, high: int, *, off: bool = False) -> None:
    if not low <= value <= high:
        allowed = f"0 (off) or {low} to {high}" if off else f"{low} to {high}"
        raise ConfigError(f"{flag} {value} is out of range; use {allowed}")
