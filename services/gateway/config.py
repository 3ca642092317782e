"""The gateway's options. The only file of this service that reads the environment."""

import importlib.util
import ipaddress
import math
import os
from dataclasses import dataclass, replace
from pathlib import Path

from services.gateway.output.choice import OPTIONS as TOOL_PARSERS
from shared.errors import ConfigError
from shared.logs import LEVELS
from shared.options import option

TRACING = ("opentelemetry.sdk.trace", "opentelemetry.exporter.otlp.proto.http.trace_exporter")


@dataclass(frozen=True)
class GatewayConfig:
    model: Path = option(
        help="folder of the checkpoint, as `ninfer-model fetch` prints it", group="Model"
    )
    sockets: Path = option(help="folder of the Unix sockets, mode 700", group="Processes")
    host: str = option(
        "127.0.0.1", "address to listen on; beyond loopback it needs --api-key", group="HTTP"
    )
    port: int = option(8080, "TCP port, 1..65535")
    model_id: str | None = option(None, "the name clients use; default: the model folder's name")
    api_key: str | None = option(None, "required as Bearer or x-api-key; also NINFER_API_KEY")
    published_on_loopback: bool = option(
        False,
        "no key beyond loopback: --host is a container's, published on 127.0.0.1 only",
    )
    allowed_hosts: str = option("", "more Host names to answer to, separated by commas")
    allowed_origins: str = option("", "browser origins that may call, separated by commas")
    request_log_jsonl: Path | None = option(
        None, "append one JSON object an event to this file", group="Observing"
    )
    request_log_max_mib: int = option(
        256, "size at which that file is set aside as FILE.1, MiB; 0 lets it grow"
    )
    request_log_keep: int = option(3, "how many files set aside are kept, 0..99")
    max_body_mib: int = option(32, "largest request body, MiB", group="HTTP limits")
    heartbeat_s: float = option(10.0, "seconds of silence before a stream's heartbeat")
    queue_timeout_s: float = option(600.0, "seconds a request may wait for a row")
    slow_reader_s: float = option(30.0, "seconds a client may leave a write unread")
    max_connections: int = option(2048, "open HTTP connections; more are closed at once")
    body_timeout_s: float = option(60.0, "seconds a request's body may take to arrive")
    drain_s: float = option(10.0, "seconds for open requests to finish at shutdown")
    stored_responses_mib: int = option(64, "memory for stored Responses, MiB; 0 stores none")
    draft_records: int = option(
        64,
        "ended requests whose drafting GET /v1/ninfer/requests/ID explains; 0 keeps none",
        group="Observing",
    )
    otlp_endpoint: str | None = option(
        None, "where OpenTelemetry traces go by OTLP over HTTP; needs the extra ninfer[otel]"
    )
    page_requests: int = option(
        32, "requests whose texts the page at / shows, in memory only; 0 keeps none and no page"
    )
    tool_parser: str = option(
        "auto",
        "the form of the model's tool calls; auto reads its template",
        choices=TOOL_PARSERS,
        group="Answers",
    )
    default_max_tokens: int = option(4096, "output limit of a request that names none, tokens")
    ngram_archive_mib: int = option(
        0,
        "memory for texts that sessions retain, MiB; 0 is off; needs --ngram-draft-tokens",
        group="Sessions",
    )
    ngram_native_sessions: bool = option(
        False, "name sessions by what Kilo, Codex and Claude send; needs --ngram-archive-mib"
    )
    temperature: float | None = option(
        None, "sampling default; else the model's, else 0", group="Answers"
    )
    top_p: float | None = option(None, "sampling default; else the model's, else 1")
    top_k: int | None = option(None, "sampling default; else the model's, else 0 (all)")
    min_p: float | None = option(None, "sampling default; else 0")
    log_level: str = option(
        "info", "what is logged on stderr, from this level on", choices=LEVELS, group="Observing"
    )


def resolve(config: GatewayConfig) -> GatewayConfig:
    """With the key from the environment and the name from the folder.

    Raises:
        ConfigError: an option is out of range, or the address is open to others without a key.
    """
    if config.api_key == "":
        raise ConfigError("--api-key is empty; name a key, or leave the option out for none")
    config = replace(
        config,
        api_key=config.api_key or os.environ.get("NINFER_API_KEY") or None,
        model_id=config.model_id or config.model.resolve().name,
    )
    if not 1 <= config.port <= 65535:
        raise ConfigError(f"--port {config.port} is out of range; use 1 to 65535")
    for name in (
        "max_body_mib",
        "max_connections",
        "heartbeat_s",
        "queue_timeout_s",
        "slow_reader_s",
        "body_timeout_s",
        "default_max_tokens",
    ):
        value = getattr(config, name)
        if not 0 < value < math.inf:
            flag = "--" + name.replace("_", "-")
            raise ConfigError(f"{flag} {value} is out of range; use more than 0")
    _check_traces(config.otlp_endpoint)
    for name in ("draft_records", "page_requests", "stored_responses_mib", "request_log_max_mib"):
        value = getattr(config, name)
        if value < 0:
            flag = "--" + name.replace("_", "-")
            raise ConfigError(f"{flag} {value} is out of range; use 0 or more")
    if not 0 <= config.request_log_keep <= 99:
        raise ConfigError(
            f"--request-log-keep {config.request_log_keep} is out of range; use 0 to 99"
        )
    if not 0 <= config.drain_s < math.inf:
        raise ConfigError(f"--drain-s {config.drain_s} is out of range; use 0 or more")
    if not config.model_id:
        raise ConfigError("--model-id must not be empty")
    is_closed = _is_loopback(config.host) or config.published_on_loopback
    if not is_closed and not config.api_key:
        raise ConfigError(f"--host {config.host} is open to other machines; it needs --api-key")
    if config.ngram_native_sessions and not config.ngram_archive_mib:
        raise ConfigError("--ngram-native-sessions needs --ngram-archive-mib")
    log = config.request_log_jsonl
    if log is not None and not log.absolute().parent.is_dir():
        raise ConfigError(f"--request-log-jsonl {log}: its folder does not exist")
    return config


def _check_traces(endpoint: str | None) -> None:
    """Raises ConfigError: the address is none, or what sends traces is not installed."""
    if endpoint is None:
        return
    if not endpoint.startswith(("http://", "https://")):
        raise ConfigError(f"--otlp-endpoint {endpoint} does not begin with http:// or https://")
    try:
        found = all(importlib.util.find_spec(name) for name in TRACING)
    except ModuleNotFoundError:  # not even a package around it
        found = False
    if not found:
        raise ConfigError("--otlp-endpoint needs OpenTelemetry: pip install 'ninfer[otel]'")


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
