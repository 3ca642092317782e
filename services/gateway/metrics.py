"""`GET /metrics`: counts of ended requests, in vLLM's names where it has the same.

Nothing is counted for a token alone: a request is counted at its end, and what others count
already (`metrics_collector.py`) is read when somebody asks. `docs/metrics.md` lists everything.
"""

from typing import Any

from prometheus_client import CollectorRegistry, Counter, Histogram, disable_created_metrics

from services.gateway.outcome import Outcome
from shared.messages import SpeculativeStats

# vLLM's buckets, so that its dashboards and alerts fit.
TTFT_S = (
    *(0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5),
    *(10.0, 20.0, 40.0, 80.0, 160.0, 640.0, 2560.0),
)
TOKEN_S = (
    *(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75),
    *(1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0),
)
REQUEST_S = (
    *(0.01, 0.05, 0.1, 0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0),
    *(50.0, 60.0, 120.0, 240.0, 480.0, 960.0, 1920.0, 7680.0),
)
LENGTHS = tuple(float(m * 10**e) for e in range(6) for m in (1, 2, 5))
# How the ends that the log names are called in vLLM.
FINISHED_REASONS = {"length": "length", "context": "length", "cancelled": "abort"}


class Metrics:
    """A RequestObserver. Every series has vLLM's two labels, the model's name and engine 0."""

    def __init__(self, model_name: str) -> None:
        # else each counter has a second series, with its birth
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self.registry = CollectorRegistry()
        self.labels = {"model_name": model_name, "engine": "0"}
        self._requests = _Requests(self)
        self._drafts = _Drafts(self)
        self._errors = self.counter("ninfer:request_errors", "Calls refused or failed", "code")

    def request_start(self, request: dict[str, Any]) -> None:
        """Counted at its end."""

    def request_done(self, request: dict[str, Any], outcome: Outcome) -> None:
        self._requests.count(outcome)
        self._drafts.count(outcome.stats.speculative)

    def request_error(self, request: dict[str, Any], phase: str, error: dict[str, Any]) -> None:
        self._errors.labels(*self.labels.values(), error["code"] or error["type"]).inc()
        if phase == "generate":
            self._requests.failed()

    def close(self) -> None:
        """Nothing is held."""

    def counter(self, name: str, about: str, *labels: str) -> Counter:
        """With further labels, the caller adds them; `_total` is added in the output."""
        counter = Counter(name, about, [*self.labels, *labels], registry=self.registry)
        return counter if labels else counter.labels(*self.labels.values())

    def histogram(self, name: str, about: str, buckets: tuple[float, ...]) -> Histogram:
        histogram = Histogram(name, about, [*self.labels], buckets=buckets, registry=self.registry)
        return histogram.labels(*self.labels.values())


class _Requests:
    """How long, how many tokens, how they ended."""

    def __init__(self, metrics: Metrics) -> None:
        self._labels = tuple(metrics.labels.values())
        counter, histogram = metrics.counter, metrics.histogram
        self._success = counter(
            "vllm:request_success", "Requests that ended, by reason", "finished_reason"
        )
        for reason in ("stop", "length", "abort", "error"):
            self._success.labels(*self._labels, reason)  # 0 is there before the first
        self._prompt = counter("vllm:prompt_tokens", "Prompt tokens of ended requests")
        self._queries = counter("vllm:prefix_cache_queries", "Prompt tokens looked up for reuse")
        self._hits = counter("vllm:prefix_cache_hits", "Prompt tokens whose KV was reused")
        self._reused = counter("ninfer:reused_tokens", "The same, by where their KV was", "place")
        self._computed = counter("ninfer:computed_prefill_tokens", "Prompt tokens computed")
        self._ttft = histogram("vllm:time_to_first_token_seconds", "Receipt to first text", TTFT_S)
        self._token = histogram(
            "vllm:request_time_per_output_token_seconds",
            "Decode seconds per token behind the first",
            TOKEN_S,
        )
        self._total = histogram(
            "vllm:e2e_request_latency_seconds", "Receipt of the call to its end", REQUEST_S
        )
        self._stages = {
            stage: histogram(f"vllm:request_{stage}_time_seconds", about, REQUEST_S)
            for stage, about in (
                ("queue", "Wait for a row"),
                ("prefill", "First prefill pass to first token"),
                ("decode", "First token to the last"),
                ("inference", "Prefill and decode"),
            )
        }
        self._prepare = histogram(
            "ninfer:request_prepare_time_seconds", "Reading, template, tokenising", TTFT_S
        )
        self._prompt_length = histogram("vllm:request_prompt_tokens", "Prompt tokens", LENGTHS)
        self._output_length = histogram("vllm:request_generation_tokens", "Output tokens", LENGTHS)

    def failed(self) -> None:
        self._success.labels(*self._labels, "error").inc()

    def count(self, outcome: Outcome) -> None:
        """Once for a request, however many choices it has; a token's time is each output's own."""
        stats = outcome.stats
        reason = FINISHED_REASONS.get(outcome.reason, "stop")
        self._success.labels(*self._labels, reason).inc()
        self._prompt.inc(stats.prompt_tokens)
        self._computed.inc(stats.computed_prefill_tokens)
        self._queries.inc(stats.prompt_tokens)
        self._hits.inc(stats.cached_tokens)
        if stats.cached_tokens:
            self._reused.labels(*self._labels, stats.cached_from).inc(stats.cached_tokens)
        self._prompt_length.observe(stats.prompt_tokens)
        self._output_length.observe(outcome.completion_tokens)
        for histogram, name in (
            (self._ttft, "ttft"),
            (self._prepare, "prepare"),
            (self._total, "total"),
        ):
            seconds = outcome.timings[name]
            if seconds is not None:
                histogram.observe(seconds)
        for output in outcome.each:
            decoded = output.stats.output_tokens - 1  # the first comes from the prefill
            if decoded > 0:
                self._token.observe(output.stats.timings.decode_s / decoded)
        engine = stats.timings
        self._stages["queue"].observe(engine.queue_s)
        self._stages["prefill"].observe(engine.prefill_s)
        self._stages["decode"].observe(engine.decode_s)
        self._stages["inference"].observe(engine.prefill_s + engine.decode_s)


class _Drafts:
    """What was drafted and kept, in all and by where it came from."""

    def __init__(self, metrics: Metrics) -> None:
        self._labels = tuple(metrics.labels.values())
        counter = metrics.counter
        self._rounds = counter("vllm:spec_decode_num_drafts", "Passes that verified drafts")
        self._drafted = counter("vllm:spec_decode_num_draft_tokens", "Drafted tokens")
        self._accepted = counter("vllm:spec_decode_num_accepted_tokens", "Accepted drafts")
        self._positions = counter(
            "vllm:spec_decode_num_accepted_tokens_per_pos",
            "Accepted drafts by their place in the draft, from 0",
            "position",
        )
        self._passes = counter("ninfer:decode_passes", "Passes of a row, verify or plain", "kind")
        self._sources = [
            counter(f"ninfer:draft_{what}", about, "source")
            for what, about in (
                ("rounds", "Rounds by what was drafted from"),
                ("tokens", "Drafted tokens by source"),
                ("accepted_tokens", "Accepted drafts by source"),
            )
        ]
        self._handoffs = counter(
            "ninfer:copy_handoffs", "Matches dropped since their source was ending"
        )
        self._resumes = counter("ninfer:copy_resumes", "Copies that went on without a search")
        self._waits = counter(
            "ninfer:index_wait_rounds", "Decode rounds that ran before the prompt's index came"
        )
        for kind in ("verify", "plain"):
            self._passes.labels(*self._labels, kind)

    def count(self, stats: SpeculativeStats) -> None:
        self._rounds.inc(stats.rounds)
        self._drafted.inc(stats.drafted_tokens)
        self._accepted.inc(stats.accepted_tokens)
        self._passes.labels(*self._labels, "verify").inc(stats.rounds)
        self._passes.labels(*self._labels, "plain").inc(stats.fallback_steps)
        for i_position, accepted in enumerate(stats.accepted_per_position):
            self._positions.labels(*self._labels, str(i_position)).inc(accepted)
        for source in stats.sources:
            counts = (source.rounds, source.drafted_tokens, source.accepted_tokens)
            for counter, count in zip(self._sources, counts, strict=True):
                counter.labels(*self._labels, source.kind).inc(count)
        self._handoffs.inc(stats.ngram_handoffs)
        self._resumes.inc(stats.ngram_resumes)
        self._waits.inc(stats.ngram_index_wait_rounds)
