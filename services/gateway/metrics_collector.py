"""What is read at the moment of a scrape: load, processes, the archive."""

from collections.abc import Iterator
from importlib.metadata import version

from aiohttp import web
from prometheus_client.aiohttp import make_aiohttp_handler
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector

from services.gateway.admission import Admission
from services.gateway.archive_link import ArchiveLink
from services.gateway.engine_link import EngineLink
from services.gateway.health import services_up
from services.gateway.indexer_link import IndexerLink
from services.gateway.metrics import Metrics
from services.gateway.token_gaps import TokenGaps
from shared.errors import ArchiveAbsent
from shared.messages import Sessions


class LiveMetrics(Collector):
    """Registers itself with `metrics`; `show` answers GET /metrics."""

    def __init__(
        self,
        metrics: Metrics,
        *,
        link: EngineLink,
        indexer: IndexerLink,
        archive: ArchiveLink | None,
        admission: Admission,
        gaps: TokenGaps,
    ) -> None:
        self._labels = metrics.labels
        self._link = link
        self._indexer = indexer
        self._archive = archive
        self._admission = admission
        self._gaps = gaps
        self._sessions: Sessions | None = None  # as the archive answered last; None: it did not
        metrics.registry.register(self)
        ProcessCollector(registry=metrics.registry)
        self._handler = make_aiohttp_handler(metrics.registry)

    async def show(self, http: web.Request) -> web.StreamResponse:
        """Prometheus text, or OpenMetrics if the client prefers it."""
        if self._archive is not None:
            try:
                self._sessions = await self._archive.sessions()
            except ArchiveAbsent:
                self._sessions = None  # its series are absent, and service_up says why
        return await self._handler(http)

    def describe(self) -> list[Metric]:
        """Nothing: the registry need not collect to know the names."""
        return []

    def collect(self) -> Iterator[Metric]:
        yield from self._load()
        yield from self._tokens()
        yield from self._processes()
        if self._archive is not None and self._sessions is not None:
            yield from self._archived(self._sessions)

    def _load(self) -> Iterator[Metric]:
        status = self._link.status
        if status is not None:  # without an engine there is no load to tell
            yield self._gauge("vllm:num_requests_running", "Requests that decode", status.running)
            yield self._gauge("vllm:num_requests_waiting", "Requests in the queue", status.waiting)
            used = status.kv_used_tokens / status.kv_total_tokens if status.kv_total_tokens else 0
            yield self._gauge("vllm:kv_cache_usage_perc", "KV in use; 1 is all of it", used)
        yield self._gauge("ninfer:open_requests", "Calls not yet answered", self._admission.open)

    def _tokens(self) -> Iterator[Metric]:
        yield self._counter(
            "vllm:generation_tokens", "Output tokens as they come", self._link.output_tokens
        )
        family = HistogramMetricFamily(
            "vllm:inter_token_latency_seconds", "Between a round's tokens and the next round's"
        )
        family.add_metric([], self._gaps.buckets(), self._gaps.sum_s)
        yield self._labelled(family)

    def _processes(self) -> Iterator[Metric]:
        up = services_up(self._link, self._indexer, self._archive)
        starts = {"gateway": 1, "engine": self._link.starts}
        starts["indexer"] = self._indexer.starts.count()
        if self._archive is not None:
            starts["archive"] = self._archive.starts.count()
        gauge = GaugeMetricFamily("ninfer:service_up", "1: the process serves", labels=["service"])
        counter = CounterMetricFamily(
            "ninfer:service_starts",
            "Starts that this gateway has seen; more than 1 are restarts",
            labels=["service"],
        )
        for service, is_up in up.items():
            gauge.add_metric([service], is_up)
            counter.add_metric([service], starts[service])
        yield self._labelled(gauge)
        yield self._labelled(counter)
        yield self._counter(
            "ninfer:index_skipped", "Requests without an index, as none took it", self._indexer.lost
        )
        ready = self._link.ready
        if ready is not None:
            facts = {
                "version": version("ninfer"),
                "device": ready.model.device,
                "dtype": ready.model.dtype,
                "weights": ready.model.weights,
                "exact": str(ready.model.exact).lower(),
                "ngram_policy": ready.limits.ngram_policy,
                "ngram_draft_tokens": str(ready.limits.ngram_draft_tokens),
                "spec": ready.limits.spec,
            }
            info = GaugeMetricFamily("ninfer:info", "What serves; always 1", labels=list(facts))
            info.add_metric(list(facts.values()), 1)
            yield self._labelled(info)
            yield self._gauge("ninfer:rows", "Requests at once", ready.limits.max_concurrency)

    def _archived(self, found: Sessions) -> Iterator[Metric]:
        yield self._gauge("ninfer:archive_bytes", "Retained by all sessions", found.total_bytes)
        yield self._gauge("ninfer:archive_capacity_bytes", "At most", found.capacity_bytes)
        yield self._gauge("ninfer:archive_sessions", "Sessions there are", len(found.sessions))
        bound = sum(session.bound for session in found.sessions)
        yield self._gauge("ninfer:archive_bound_sessions", "In use by a request", bound)
        yield self._counter(
            "ninfer:archive_evicted_spans", "Texts that had to make room", found.evicted_spans
        )

    def _gauge(self, name: str, about: str, value: float) -> Metric:
        return self._labelled(GaugeMetricFamily(name, about, value=value))

    def _counter(self, name: str, about: str, value: float) -> Metric:
        return self._labelled(CounterMetricFamily(name, about, value=value))

    def _labelled(self, family: Metric) -> Metric:
        """With vLLM's labels on every sample."""
        family.samples = [s._replace(labels=self._labels | s.labels) for s in family.samples]
        return family
