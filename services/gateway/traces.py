"""OpenTelemetry spans of ended requests, with the GenAI conventions' attributes; never any text.

Imported only with `--otlp-endpoint`, since the SDK is an optional extra.
"""

import time
from typing import Any

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import Span, SpanKind, Status, StatusCode, set_span_in_context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from services.gateway.outcome import Outcome

EXPORT_S = 2.0  # for one try; a collector that is away costs spans, never an answer
TRACES_PATH = "/v1/traces"
# The log's names for a request's sampling, as the conventions call them.
SAMPLING = {
    "temperature": "gen_ai.request.temperature",
    "top_p": "gen_ai.request.top_p",
    "top_k": "gen_ai.request.top_k",
    "presence_penalty": "gen_ai.request.presence_penalty",
    "frequency_penalty": "gen_ai.request.frequency_penalty",
}
# Refused before it was known what was asked for: there is nothing to trace.
UNTRACED_PHASES = ("guard", "http")


class Traces:
    """A RequestObserver: one span a request, under the caller's if it sent a `traceparent`.

    Spans are made at the end, when everything is known, with the times that were measured; a
    thread of the SDK sends them, from a queue that drops when it is full.
    """

    def __init__(self, endpoint: str, *, model_name: str, version: str) -> None:
        resource = Resource.create({"service.name": "ninfer", "service.version": version})
        self._provider = TracerProvider(resource=resource)
        base = endpoint.rstrip("/")
        address = base if base.endswith(TRACES_PATH) else base + TRACES_PATH
        exporter = OTLPSpanExporter(endpoint=address, timeout=EXPORT_S)
        self._provider.add_span_processor(BatchSpanProcessor(exporter))
        self._tracer = self._provider.get_tracer("ninfer", version)
        self._model_name = model_name
        self._started_ns: dict[str, int] = {}  # of open requests

    def request_start(self, request: dict[str, Any]) -> None:
        self._started_ns[request["request_id"]] = time.time_ns()

    def request_done(self, request: dict[str, Any], outcome: Outcome) -> None:
        stats, timings = outcome.stats, outcome.timings
        self._started_ns.pop(request["request_id"], None)
        now_ns = time.time_ns()
        began_ns = now_ns - _ns(timings["total"])
        span = self._span(request, began_ns)
        span.set_attributes(_attributes(outcome))
        at_ns = began_ns
        for name, seconds in (
            ("prepare", timings["prepare"]),
            ("queue", stats.timings.queue_s),
            ("prefill", stats.timings.prefill_s),
            ("decode", stats.timings.decode_s),
        ):
            child = self._tracer.start_span(name, set_span_in_context(span), start_time=at_ns)
            at_ns = min(now_ns, at_ns + _ns(seconds))
            child.end(at_ns)
        span.end(now_ns)

    def request_error(self, request: dict[str, Any], phase: str, error: dict[str, Any]) -> None:
        if phase in UNTRACED_PHASES:
            return
        now_ns = time.time_ns()
        span = self._span(request, self._started_ns.pop(request["request_id"], now_ns))
        # the code alone: a sentence may quote the client
        span.set_attribute("error.type", error["code"] or error["type"])
        span.set_attribute("ninfer.phase", phase)
        span.set_status(Status(StatusCode.ERROR))
        span.end(now_ns)

    def close(self) -> None:
        """Sends what is left, for at most a try."""
        self._provider.shutdown()

    def _span(self, request: dict[str, Any], began_ns: int) -> Span:
        operation = "text_completion" if request.get("protocol") == "openai_completions" else "chat"
        parent = TraceContextTextMapPropagator().extract(
            {"traceparent": request.get("traceparent", "")}
        )
        sampling = request.get("sampling", {})
        values = {
            "gen_ai.operation.name": operation,
            "gen_ai.provider.name": "ninfer",
            "gen_ai.request.model": self._model_name,
            "gen_ai.response.model": self._model_name,
            "gen_ai.response.id": request["request_id"],
            "gen_ai.request.max_tokens": request.get("output_limit"),
            "gen_ai.request.choice.count": _several(request.get("n")),
            "ninfer.protocol": request.get("protocol"),
            **{name: sampling.get(own) for own, name in SAMPLING.items()},
        }
        # a seed of 64 unsigned bits is no attribute's integer
        if "seed" in sampling:
            values["ninfer.request.seed"] = str(sampling["seed"])
        return self._tracer.start_span(
            f"{operation} {self._model_name}",
            parent,
            SpanKind.SERVER,
            {name: value for name, value in values.items() if value is not None},
            start_time=began_ns,
        )


def _attributes(outcome: Outcome) -> dict[str, Any]:
    stats, timings = outcome.stats, outcome.timings
    drafts = stats.speculative
    values: dict[str, Any] = {
        "gen_ai.response.finish_reasons": tuple(output.reason for output in outcome.each),
        "gen_ai.usage.input_tokens": stats.prompt_tokens,
        "gen_ai.usage.output_tokens": outcome.completion_tokens,
        "gen_ai.usage.cache_read.input_tokens": stats.cached_tokens,
        "ninfer.decode_passes": stats.decode_passes,
        "ninfer.drafted_tokens": drafts.drafted_tokens,
        "ninfer.accepted_tokens": drafts.accepted_tokens,
    }
    for source in drafts.sources:
        values[f"ninfer.accepted_tokens.{source.kind}"] = source.accepted_tokens
    if timings["ttft"] is not None:
        values["gen_ai.server.time_to_first_token"] = timings["ttft"]
    return values


def _several(choices: int | None) -> int | None:
    """The conventions want the count only where it is not 1."""
    return choices if choices and choices > 1 else None


def _ns(seconds: float | None) -> int:
    return int((seconds or 0.0) * 1e9)
