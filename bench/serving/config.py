"""`ninfer-bench`'s options: its own, and all of the engine's, made from `EngineConfig`."""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.serving.workloads import WORKLOADS
from services.engine.checkpoint.fetch import default_folder
from services.engine.config import EngineConfig
from shared import options
from shared.errors import ConfigError
from shared.options import option

COPY_TOKENS = 15
CONTEXTS = ("short", "near")
QUICK_CONTEXT = 2048
OURS = ("model", "sockets", "log_level")  # of EngineConfig, and not the engine's business here
OF_OWN_SERVERS = ("model", "sweep", "one_server", "start_s")


@dataclass(frozen=True)
class BenchConfig:
    model: Path | None = option(
        None, "folder of the checkpoint to serve; default: the demo model", group="Which server"
    )
    url: str | None = option(
        None, "measure the ninfer that runs there (http://HOST:PORT) instead of starting servers"
    )
    api_key: str | None = option(None, "its key")
    one_server: bool = option(
        False, "turn copies off by request on one server, where two do not fit side by side"
    )
    start_s: float = option(120.0, "seconds a server may take to load its model")
    sweep: str | None = option(
        None, "measure several values of one option, as ngram-draft-tokens=15,63"
    )
    workloads: str = option("all", f"of {', '.join(WORKLOADS)}; with commas", group="What to ask")
    contexts: str = option("short,near", "prompt alone, and filled up to the model's capacity")
    repeats: int = option(3, "times that everything is asked, 1..100")
    output_tokens: int = option(320, "longest answer, 16..4096 tokens")
    free: bool = option(
        False, "ask in words alone; small models need a prefilled or held answer to copy at all"
    )
    quick: bool = option(
        False, f"one repeat, 96 tokens, a capacity of {QUICK_CONTEXT} tokens where none is named"
    )
    compare: str | None = option(
        None,
        "ask an OpenAI-compatible server (llama.cpp, vLLM, any) the same prompts, by its URL",
        group="Another server beside it",
    )
    compare_model: str | None = option(None, "model to ask there; default: the first it lists")
    compare_key: str | None = option(None, "its key")
    compare_texts: bool = option(False, "count how many of its texts equal ours")
    csv: Path | None = option(None, "one line a row of the table", group="Report")
    json: Path | None = option(None, "everything, each repeat too; - is standard output")
    plot: Path | None = option(None, "a picture, by its suffix; needs the extra ninfer[bench]")


def bench_config() -> type:
    """BenchConfig with the engine's options behind it."""
    fields: list[tuple[str, Any, Any]] = []
    for kind in (BenchConfig, EngineConfig):
        sections = options.groups(kind)
        for field in dataclasses.fields(kind):
            if kind is EngineConfig and field.name in OURS:
                continue
            section = sections[field.name]
            title = f"Engine: {section}" if kind is EngineConfig else section
            metadata = {**field.metadata, "group": title}
            default = field.default
            if field.name == "ngram_draft_tokens":
                default = COPY_TOKENS
                metadata["help"] = "widest copy where copies are on, 1..63 tokens"
            like = dataclasses.field(default=default, metadata=metadata)
            fields.append((field.name, field.type, like))
    return dataclasses.make_dataclass("NinferBenchConfig", fields, frozen=True)


@dataclass(frozen=True)
class Configuration:
    """One thing to measure: a server's flags, or what its requests say."""

    name: str
    flags: tuple[str, ...]
    ninfer: dict[str, Any]  # the `ninfer` object of its requests

    @property
    def copies(self) -> bool:
        return self.name != "off"


@dataclass(frozen=True)
class Plan:
    """The options, checked and resolved."""

    config: BenchConfig
    model: Path
    workloads: tuple[str, ...]
    contexts: tuple[str, ...]
    configurations: tuple[Configuration, ...]  # the first is "off"


def plan(argv: Sequence[str]) -> Plan:
    """Raises ConfigError: an option is unknown, out of range or of no effect beside the others."""
    merged: Any = options.parse(
        bench_config(), argv, prog="ninfer-bench", about=ABOUT, examples=EXAMPLES
    )
    config = options.select(BenchConfig, merged)
    for flag, value, low, high in (
        ("--repeats", config.repeats, 1, 100),
        ("--output-tokens", config.output_tokens, 16, 4096),
    ):
        if not low <= value <= high:
            raise ConfigError(f"{flag} {value} is out of range; use {low} to {high}")
    if not 0 < config.start_s < 86_400:
        raise ConfigError(f"--start-s {config.start_s} is out of range; use more than 0")
    _check_targets(config, merged)
    if config.quick:
        config = dataclasses.replace(config, repeats=1, output_tokens=min(config.output_tokens, 96))
        if not merged.max_context and config.url is None:
            merged = dataclasses.replace(merged, max_context=QUICK_CONTEXT)
    return Plan(
        config=config,
        model=config.model or default_folder("smollm2-135m"),
        workloads=_chosen("--workloads", config.workloads, tuple(WORKLOADS)),
        contexts=_chosen("--contexts", config.contexts, CONTEXTS),
        configurations=_configurations(config, merged),
    )


def _check_targets(config: BenchConfig, merged: Any) -> None:
    for flag, url in (("--url", config.url), ("--compare", config.compare)):
        if url is not None and not url.startswith(("http://", "https://")):
            raise ConfigError(f"{flag} {url} does not begin with http:// or https://")
    for name in ("compare_model", "compare_key", "compare_texts"):
        if getattr(config, name) and config.compare is None:
            raise ConfigError(f"{options.flags(BenchConfig)[name]} needs --compare")
    if config.url is None:
        if config.api_key is not None:
            raise ConfigError("--api-key needs --url")
        return
    flags = options.flags(type(merged))
    engines = set(options.flags(EngineConfig)) - set(OURS)
    for field in dataclasses.fields(merged):
        given = getattr(merged, field.name) != field.default
        if given and (field.name in engines or field.name in OF_OWN_SERVERS):
            raise ConfigError(f"{flags[field.name]} has no effect on a server that runs (--url)")


def _configurations(config: BenchConfig, merged: Any) -> tuple[Configuration, ...]:
    if not merged.ngram_draft_tokens:
        raise ConfigError("--ngram-draft-tokens 0 would measure off against off; use 1 to 63")
    by_request = {"ngram_draft_tokens": 0}
    if config.url is not None:
        return Configuration("off", (), by_request), Configuration("on", (), {})
    base = _flags(merged)
    if config.one_server:
        if config.sweep is not None:
            raise ConfigError("--sweep needs a server a value; leave out --one-server")
        return Configuration("off", base, by_request), Configuration("on", base, {})
    # sessions retain texts to copy from, so they go with the copies
    without = dataclasses.replace(merged, ngram_draft_tokens=0, ngram_archive_mib=0)
    off = Configuration("off", _flags(without), {})
    if config.sweep is None:
        return off, Configuration("on", base, {})
    return off, *_swept(config.sweep, base)


def _swept(sweep: str, base: tuple[str, ...]) -> list[Configuration]:
    name, _, values = sweep.partition("=")
    flag = f"--{name.removeprefix('--')}"
    engines = {options.flags(EngineConfig)[f] for f in options.flags(EngineConfig) if f not in OURS}
    if flag not in engines or not values:
        raise ConfigError(f"--sweep {sweep}: name an engine's option, as ngram-draft-tokens=15,63")
    found = []
    for value in dict.fromkeys(values.split(",")):
        swept = f"{flag}={value}"
        options.parse(bench_config(), [swept], prog="ninfer-bench")
        kept = tuple(f for f in base if f.partition("=")[0] != flag)
        found.append(Configuration(f"{flag.removeprefix('--')}={value}", (*kept, swept), {}))
    return found


def _flags(merged: Any) -> tuple[str, ...]:
    """The engine's flags that differ from its defaults."""
    defaults = {f.name: f.default for f in dataclasses.fields(EngineConfig)}
    values = {
        name: getattr(merged, name) for name in options.flags(EngineConfig) if name not in OURS
    }
    config = EngineConfig(model=Path(), sockets=Path(), **values)
    changed = {
        flag
        for name, flag in options.flags(EngineConfig).items()
        if name not in OURS and getattr(config, name) != defaults[name]
    }
    return tuple(f for f in options.render(config) if f.partition("=")[0] in changed)


def _chosen(flag: str, wanted: str, known: tuple[str, ...]) -> tuple[str, ...]:
    names = known if wanted == "all" else tuple(dict.fromkeys(wanted.split(",")))
    for name in names:
        if name not in known:
            raise ConfigError(f"{flag} {name!r} is unknown; use {', '.join(known)} or all")
    return names


ABOUT = """Measures what copies gain and cost: the same prompts with copies off and on, in turn.
Texts are compared before any speed is printed; exit status 1 if they differ although the model is
exact."""
EXAMPLES = """examples:
  ninfer-bench --quick                                the demo model, some minutes
  ninfer-bench --model DIR --sweep ngram-draft-tokens=15,63 --json run.json --plot run.png
  ninfer-bench --model DIR --spec mtp --workloads edits,reasoning
  ninfer-bench --url http://127.0.0.1:8080            a server that runs
  ninfer-bench --model DIR --compare http://127.0.0.1:8000 --compare-texts

docs/benchmarking.md says what each column means and how to read it."""
