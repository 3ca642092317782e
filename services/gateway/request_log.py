"""The request log: one JSON object a line, never any text of a prompt or output, never a key.

Events: server_start, request_start, and for each started request exactly one of request_done and
request_error. A request refused before its start has only a request_error with phase "prepare".
`log_lines.py` has the lines as types, `docs/request-log.md` describes them.
"""

import re
import time
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import msgspec
import structlog

from services.gateway.acceptance import acceptance
from services.gateway.log_file import LogFile
from services.gateway.log_lines import ARTIFACT_TYPE, SCHEMA_VERSION
from services.gateway.outcome import Outcome
from services.gateway.request_observer import RequestObserver
from shared.errors import ConfigError, NinferError
from shared.messages import EngineReady, GenerationStats

MIB = 1 << 20
LOGGED_CHARACTERS = 200  # of what is said about an error


class GenerationLog(Protocol):
    """What one generation reports: its start, then exactly one end."""

    def request_start(self, request: dict[str, Any]) -> None: ...

    def request_done(self, request: dict[str, Any], outcome: Outcome) -> None: ...

    def request_error(self, request: dict[str, Any], phase: str, error: dict[str, Any]) -> None: ...


class RequestLog:
    """Appends to a file, if there is one, and prints a readable line for each finished request.

    `server` describes this process in each server_start line. `observers` hear the same events.
    """

    def __init__(
        self,
        path: Path | None,
        server: dict[str, Any],
        observers: Sequence[RequestObserver] = (),
        *,
        max_mib: int = 0,
        keep: int = 0,
    ) -> None:
        """Beyond `max_mib` the file is set aside, and so many older ones are kept; 0 never."""
        try:
            self._file = LogFile(path, most_bytes=MIB * max_mib, keep=keep) if path else None
        except OSError as exc:
            raise ConfigError(f"--request-log-jsonl {path} cannot be written: {exc}") from exc
        self._server = server
        self._observers = observers
        self._log = structlog.get_logger(service="gateway")
        self._render = structlog.processors.JSONRenderer()
        self._instance_id = uuid.uuid4().hex
        self._lost = 0  # lines, since the last that was written
        self._start = b""  # the last server_start, which begins every file

    def server_start(self, engine: EngineReady) -> None:
        started = {
            "instance_id": engine.instance_id,
            "model": _plain(engine.model),
            "limits": _plain(engine.limits),
        }
        self._start = b""  # this line begins a file itself
        self._start = self._write("server_start", server=self._server, engine=started)

    def request_start(self, request: dict[str, Any]) -> None:
        self._write("request_start", request=request)
        for observer in self._observers:
            observer.request_start(request)

    def request_done(self, request: dict[str, Any], outcome: Outcome) -> None:
        stats, engine = outcome.stats, outcome.stats.timings
        choices = [_choice(index, choice) for index, choice in enumerate(outcome.choices)]
        self._write(
            "request_done",
            request=request,
            result={
                "finish_reason": outcome.reason,
                "prompt_tokens": stats.prompt_tokens,
                "completion_tokens": outcome.completion_tokens,
                "computed_prefill_tokens": stats.computed_prefill_tokens,
                "prefix_cache_hit_tokens": stats.cached_tokens,
                "prefix_cache_source": stats.cached_from,
                "prefix_cache_end": stats.cached_until,
                "decode_passes": stats.decode_passes,
                "reasoning_tokens": outcome.reasoning_tokens,
                "tool_calls": outcome.tool_calls,
                **({"choices": choices} if choices else {}),
            },
            timings_seconds={
                **outcome.timings,
                "queue": engine.queue_s,
                "prefill": engine.prefill_s,
                "decode": engine.decode_s,
                "forward": engine.forward_s,
                "host": engine.host_s,
                "neural": engine.neural_s,
            },
            speculative=_plain(stats.speculative)
            | acceptance(stats.speculative)
            | {"sources": [_plain(source) for source in stats.speculative.sources]},
            ngram_archive=outcome.archive,
        )
        shown = summary(outcome) | session_summary(request.get("draft_session"), outcome.archive)
        self._log.info(
            "request_done", request_id=request["request_id"], reason=outcome.reason, **shown
        )
        for observer in self._observers:
            observer.request_done(request, outcome)

    def request_error(self, request: dict[str, Any], phase: str, error: dict[str, Any]) -> None:
        self._write("request_error", request=request, phase=phase, error=error)
        for observer in self._observers:
            observer.request_error(request, phase, error)
        self._log.warning(
            "request_error",
            request_id=request["request_id"],
            phase=phase,
            status=error["status"],
            code=error["code"],
            param=error["param"],
            reason=error["reason"],
        )

    def close(self) -> None:
        for observer in self._observers:
            observer.close()
        if self._file:
            self._file.close()

    def _write(self, event: str, **fields: Any) -> bytes:
        if self._file is None:
            return b""
        said = {
            "artifact_type": ARTIFACT_TYPE,
            "schema_version": SCHEMA_VERSION,
            "event": event,
            "timestamp_unix_ms": time.time_ns() // 1_000_000,
            "server_instance_id": self._instance_id,
            **fields,
        }
        line = f"{self._render(self._log, event, said)!s}\n".encode()
        try:
            self._file.write(line, self._start)
        except OSError as exc:
            # a full disk must not fail requests; said once until a line can be written again
            if not self._lost:
                self._log.error("request_log_failed", error=str(exc))
            self._lost += 1
        else:
            if self._lost:
                self._log.warning("request_log_goes_on", lost_lines=self._lost)
            self._lost = 0
        return line


def summary(outcome: Outcome) -> dict[str, Any]:
    """What a person wants on one line."""
    stats, ttft_s = outcome.stats, outcome.timings["ttft"]
    copies = stats.speculative
    # the first token of each output comes from a prefill
    decoded = sum(max(0, output.completion_tokens - 1) for output in outcome.each)
    decode_s = stats.timings.decode_s
    passes = stats.decode_passes
    return {
        **({"choices": len(outcome.choices)} if outcome.choices else {}),
        "prompt": stats.prompt_tokens,
        "output": outcome.completion_tokens,
        "tok_s": round(decoded / decode_s, 1) if decode_s > 0 else None,
        "tokens_per_pass": round(decoded / passes, 2) if passes else None,
        "copies": f"{copies.ngram_accepted_tokens}/{copies.ngram_drafted_tokens}"
        f" in {copies.ngram_rounds} rounds",
        "ttft_s": None if ttft_s is None else round(ttft_s, 3),
        **lookup_summary(stats),
    }


def _choice(index: int, choice: Outcome) -> dict[str, Any]:
    return {
        "index": index,
        "finish_reason": choice.reason,
        "completion_tokens": choice.completion_tokens,
        "decode_passes": choice.stats.decode_passes,
        "reasoning_tokens": choice.reasoning_tokens,
        "tool_calls": choice.tool_calls,
        "drafted_tokens": choice.stats.speculative.drafted_tokens,
        "accepted_tokens": choice.stats.speculative.accepted_tokens,
    }


def lookup_summary(stats: GenerationStats) -> dict[str, str]:
    """What `--lookup-ngram` drafted, if it did."""
    for source in stats.speculative.sources:
        if source.kind == "lookup":
            drafted = f"{source.accepted_tokens}/{source.drafted_tokens}"
            return {"lookups": f"{drafted} in {source.rounds} rounds"}
    return {}


def session_summary(session_id: str | None, archive: dict[str, Any]) -> dict[str, str]:
    """What became of the session that the request named, if it named one."""
    reason = archive.get("reason")
    if session_id is None and reason is None:
        return {}
    became = reason or f"generation {archive.get('generation')}"
    return {"session": f"{session_id}: {became}" if session_id else became}


def describe_error(error: NinferError) -> dict[str, Any]:
    """What went wrong and where, without what the client wrote."""
    return {
        "status": error.status,
        "type": type(error).__name__,
        "code": error.code,
        "param": error.param[:LOGGED_CHARACTERS] if error.param else error.param,
        "reason": error.logged or without_quotes(error.message)[:LOGGED_CHARACTERS],
    }


def without_quotes(message: str) -> str:
    """From the first quotation mark to the last: what stands between may hold more of them."""
    marks = r"'.*'|\".*\"|(?<=unknown field )`.*`"
    return re.sub(marks, "'...'", message, flags=re.DOTALL)


def redact(argv: list[str]) -> list[str]:
    """argv with `***` in place of the key, in both forms that a flag has."""
    shown = []
    for before, argument in zip(["", *argv], argv, strict=False):
        if before == "--api-key":
            argument = "***"
        elif argument.startswith("--api-key="):
            argument = "--api-key=***"
        shown.append(argument)
    return shown


def _plain(value: msgspec.Struct) -> dict[str, Any]:
    """A message as JSON values, without its wire tag."""
    fields: dict[str, Any] = msgspec.to_builtins(value)
    fields.pop("type")
    return fields
