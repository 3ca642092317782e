"""The request log: one JSON object a line, never any text of a prompt or output, never a key.

Events: server_start, request_start, and for each request exactly one of request_done and
request_error. `docs/request-log.md` describes the fields.
"""

import json
import sys
import time
import uuid
from pathlib import Path
from typing import Any, TextIO

import msgspec
import structlog

from shared.messages import EngineReady, GenerationStats

SCHEMA_VERSION = 1


class RequestLog:
    """Appends to a file, if there is one, and prints a readable line for each finished request."""

    def __init__(self, path: Path | None) -> None:
        self._file: TextIO | None = path.open("a", encoding="utf-8") if path else None
        self._log = structlog.get_logger(service="gateway")
        self._instance_id = uuid.uuid4().hex
        self._failing = False

    def server_start(self, engine: EngineReady, model_id: str) -> None:
        self._write(
            "server_start",
            server={"model_id": model_id, "argv": redact(sys.argv[1:])},
            engine={
                "instance_id": engine.instance_id,
                "model": msgspec.to_builtins(engine.model),
                "limits": msgspec.to_builtins(engine.limits),
            },
        )

    def request_start(self, request: dict[str, Any]) -> None:
        self._write("request_start", request=request)

    def request_done(
        self,
        request: dict[str, Any],
        reason: str,
        stats: GenerationStats,
        timings: dict[str, float | None],
    ) -> None:
        speculative = msgspec.to_builtins(stats.speculative)
        engine = stats.timings
        self._write(
            "request_done",
            request=request,
            result={
                "finish_reason": reason,
                "prompt_tokens": stats.prompt_tokens,
                "completion_tokens": stats.output_tokens,
                "computed_prefill_tokens": stats.computed_prefill_tokens,
                "prefix_cache_hit_tokens": stats.cached_tokens,
                "decode_passes": stats.decode_passes,
            },
            timings_seconds={
                **timings,
                "queue": engine.queue_s,
                "prefill": engine.prefill_s,
                "decode": engine.decode_s,
                "forward": engine.forward_s,
                "host": engine.host_s,
            },
            speculative=speculative,
        )
        self._log.info("request_done", **summary(request, reason, stats))

    def request_error(self, request: dict[str, Any], phase: str, error: dict[str, Any]) -> None:
        self._write("request_error", request=request, phase=phase, error=error)
        self._log.warning(
            "request_error",
            request_id=request.get("request_id"),
            phase=phase,
            status=error["status"],
            code=error["code"],
        )

    def close(self) -> None:
        if self._file:
            self._file.close()

    def _write(self, event: str, **fields: Any) -> None:
        if self._file is None:
            return
        line = {
            "schema_version": SCHEMA_VERSION,
            "event": event,
            "timestamp_unix_ms": time.time_ns() // 1_000_000,
            "server_instance_id": self._instance_id,
            **fields,
        }
        try:
            self._file.write(json.dumps(line, ensure_ascii=True) + "\n")
            self._file.flush()
            self._failing = False
        except OSError as exc:
            # a full disk must not fail requests; said once until a line can be written again
            if not self._failing:
                self._log.error("request_log_failed", error=str(exc))
            self._failing = True


def summary(request: dict[str, Any], reason: str, stats: GenerationStats) -> dict[str, Any]:
    """What a person wants on one line."""
    copies = stats.speculative
    decoded = max(0, stats.output_tokens - 1)
    decode_s = stats.timings.decode_s
    passes = stats.decode_passes
    return {
        "request_id": request["request_id"],
        "reason": reason,
        "prompt": stats.prompt_tokens,
        "output": stats.output_tokens,
        "tok_s": round(decoded / decode_s, 1) if decode_s > 0 else None,
        "tokens_per_pass": round(decoded / passes, 2) if passes else None,
        "copies": f"{copies.ngram_accepted_tokens}/{copies.ngram_drafted_tokens}"
        f" in {copies.ngram_rounds} rounds",
        "ttft_s": round(stats.timings.queue_s + stats.timings.prefill_s, 3),
    }


def redact(argv: list[str]) -> list[str]:
    return [a if not a.startswith("--api-key") else "--api-key=***" for a in argv]
