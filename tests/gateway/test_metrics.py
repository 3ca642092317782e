"""`GET /metrics`: what is counted, by which names, and that a dashboard asks for no other."""

import asyncio
import contextlib
import json
import re
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
import zmq
import zmq.asyncio
from prometheus_client.parser import text_string_to_metric_families

from shared import sockets
from shared.endpoints import in_directory
from shared.messages import ArchiveToGateway, GatewayToArchive, Sessions, SourceStats
from shared.wire import Codec
from tests.gateway.conftest import Serve, Served
from tests.scripted_engine import Turn, hang, say

ROOT = Path(__file__).parents[2]
SOURCES = (
    SourceStats(kind="prompt", rounds=3, drafted_tokens=40, accepted_tokens=30),
    SourceStats(kind="tool", rounds=2, drafted_tokens=20, accepted_tokens=5),
)


async def scrape(served: Served, **headers: str) -> "Values":
    """Each sample's value, under its name and its labels other than vLLM's two."""
    async with served.http.get(f"{served.url}/metrics", headers=headers) as answer:
        assert answer.status == 200, await answer.text()
        text = await answer.text()
    values = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            labels = dict(sample.labels)
            if not sample.name.startswith("process_"):
                assert (labels.pop("model_name"), labels.pop("engine")) == ("tiny", "0")
            shown = ",".join(f"{name}={value}" for name, value in sorted(labels.items()))
            values[f"{sample.name}{{{shown}}}" if shown else sample.name] = sample.value
    return values


Values = dict[str, float]


async def scrape_until(served: Served, condition: Callable[[Values], Any]) -> Values:
    async with asyncio.timeout(5):
        while not condition(values := await scrape(served)):
            await asyncio.sleep(0.02)
    return values


@contextlib.asynccontextmanager
async def archive(served: Served) -> AsyncIterator[None]:
    """Answers every question about sessions."""
    context = zmq.asyncio.Context()
    folder = served.log_path.parent / "sockets"
    socket = sockets.bind(context, zmq.ROUTER, in_directory(folder).sessions)

    async def answer() -> None:
        while True:
            peer, *frames = await socket.recv_multipart()
            asked = Codec(GatewayToArchive).decode(frames)
            found = Sessions(
                ticket=asked.ticket,
                sessions=(),
                total_bytes=300,
                capacity_bytes=16 << 20,
                evicted_spans=4,
            )
            await socket.send_multipart([peer, *Codec(ArchiveToGateway).encode(found)])

    task = asyncio.create_task(answer())
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        context.destroy(linger=0)


async def copying(turn: Turn) -> None:
    turn.sources = SOURCES
    await turn.tokens([70] * 20, copied=19)
    await turn.tokens([70] * 16, copied=15)
    await turn.finish("length")


async def test_an_ended_request_is_counted_in_vllms_names(serve: Serve) -> None:
    async with serve(copying) as served:
        await served.chat(max_tokens=36)
        values = await scrape(served)
        prompt = len(served.engine.generates[0].prompt_ids)
    assert values["vllm:request_success_total{finished_reason=length}"] == 1
    assert values["vllm:request_success_total{finished_reason=stop}"] == 0
    assert values["vllm:prompt_tokens_total"] == prompt
    assert values["vllm:generation_tokens_total"] == 36
    assert values["vllm:prefix_cache_queries_total"] == prompt
    assert values["vllm:prefix_cache_hits_total"] == 1
    assert values["vllm:spec_decode_num_drafts_total"] == 5
    assert values["vllm:spec_decode_num_draft_tokens_total"] == 60
    assert values["vllm:spec_decode_num_accepted_tokens_total"] == 35
    assert values["vllm:spec_decode_num_accepted_tokens_per_pos_total{position=0}"] == 5
    assert values["vllm:spec_decode_num_accepted_tokens_per_pos_total{position=1}"] == 0


async def test_seconds_are_observed_once_a_request_and_gaps_between_rounds(serve: Serve) -> None:
    async with serve(copying) as served:
        for _ in range(2):
            await served.chat(max_tokens=36)
        values = await scrape(served)
    for name in (
        "vllm:time_to_first_token_seconds",
        "vllm:e2e_request_latency_seconds",
        "vllm:request_queue_time_seconds",
        "vllm:request_prefill_time_seconds",
        "vllm:request_decode_time_seconds",
        "vllm:request_inference_time_seconds",
        "vllm:request_time_per_output_token_seconds",
        "ninfer:request_prepare_time_seconds",
    ):
        assert values[f"{name}_count"] == 2, name
        assert values[f"{name}_bucket{{le=+Inf}}"] == 2, name
    # two rounds each: one gap each
    assert values["vllm:inter_token_latency_seconds_count"] == 2
    assert values["vllm:request_queue_time_seconds_sum"] == pytest.approx(0.002)
    assert values["vllm:request_time_per_output_token_seconds_sum"] == pytest.approx(2 * 0.5 / 35)


async def test_drafts_are_counted_by_what_they_were_copied_from(serve: Serve) -> None:
    async with serve(copying) as served:
        await served.chat()
        await served.chat()
        values = await scrape(served)
    assert values["ninfer:draft_rounds_total{source=tool}"] == 4
    assert values["ninfer:draft_tokens_total{source=prompt}"] == 80
    assert values["ninfer:draft_accepted_tokens_total{source=prompt}"] == 60
    assert values["ninfer:decode_passes_total{kind=verify}"] == 10
    assert values["ninfer:decode_passes_total{kind=plain}"] == 6
    assert values["ninfer:index_wait_rounds_total"] == 2


async def test_refusals_and_failures_are_counted_by_their_code(serve: Serve) -> None:
    async def failing(turn: Turn) -> None:
        await turn.fail("server_error", "broken")

    async with serve(failing) as served:
        await served.chat()
        await served.chat(temperature=-3)
        async with served.http.get(f"{served.url}/nowhere") as answer:
            assert answer.status == 404
        values = await scrape(served)
    assert values["vllm:request_success_total{finished_reason=error}"] == 1
    counted = {k: v for k, v in values.items() if k.startswith("ninfer:request_errors_total")}
    assert sum(counted.values()) == 3
    assert len(counted) == 3


async def test_a_cancelled_request_is_an_abort(serve: Serve) -> None:
    async with serve(hang) as served:
        task = asyncio.create_task(served.events())
        await served.engine.wait_for(lambda: served.engine.generates)
        task.cancel()
        await served.wait_for_log("request_done")
        values = await scrape(served)
    assert values["vllm:request_success_total{finished_reason=abort}"] == 1


async def test_gauges_tell_the_load_of_this_moment(serve: Serve) -> None:
    async with serve(hang) as served:
        task = asyncio.create_task(served.events())
        values = await scrape_until(served, lambda v: v.get("vllm:num_requests_running"))
        task.cancel()
        await served.wait_for_log("request_done")
    assert values["vllm:num_requests_running"] == 1
    assert values["vllm:num_requests_waiting"] == 0
    assert values["vllm:kv_cache_usage_perc"] == 0
    assert values["ninfer:open_requests"] == 1
    assert values["ninfer:rows"] == 2


async def test_a_dead_engine_is_down_and_leaves_no_stale_load(serve: Serve) -> None:
    async with serve(say([])) as served:
        before = await scrape(served)
        await served.engine.crash()
        await served.wait_for_health(503)
        after = await scrape(served)
    assert before["ninfer:service_up{service=engine}"] == 1
    assert before["ninfer:service_starts_total{service=engine}"] == 1
    assert before["ninfer:service_starts_total{service=indexer}"] == 1
    assert after["ninfer:service_up{service=engine}"] == 0
    assert "vllm:num_requests_running" not in after
    assert after["ninfer:service_up{service=gateway}"] == 1


async def test_requests_without_an_indexer_are_counted(serve: Serve) -> None:
    async with serve(say([[300]]), indexer=False) as served:
        await served.chat()
        values = await scrape(served)
    assert values["ninfer:service_up{service=indexer}"] == 0
    assert values["ninfer:index_skipped_total"] == 1


async def test_the_archives_holdings_are_there_when_it_is(serve: Serve) -> None:
    async with serve(say([]), ngram_archive_mib=16) as served:
        without = await scrape(served)
        async with archive(served):
            values = await scrape_until(served, lambda v: "ninfer:archive_bytes" in v)
    assert "ninfer:archive_bytes" not in without
    assert values["ninfer:archive_bytes"] == 300
    assert without["ninfer:service_up{service=archive}"] == 0
    assert values["ninfer:archive_capacity_bytes"] == 16 << 20
    assert values["ninfer:archive_sessions"] == 0
    assert values["ninfer:archive_evicted_spans_total"] == 4
    assert values["ninfer:service_starts_total{service=archive}"] == 1


async def test_the_key_guards_the_metrics_as_any_bearer_token(serve: Serve) -> None:
    async with serve(say([]), api_key="s3cret") as served:
        async with served.http.get(f"{served.url}/metrics") as answer:
            assert answer.status == 401
        values = await scrape(served, Authorization="Bearer s3cret")
    assert values["ninfer:service_up{service=engine}"] == 1


async def test_a_client_may_ask_for_openmetrics(serve: Serve) -> None:
    async with serve(say([])) as served:
        accept = {"Accept": "application/openmetrics-text; version=1.0.0"}
        async with served.http.get(f"{served.url}/metrics", headers=accept) as answer:
            text = await answer.text()
            assert answer.content_type == "application/openmetrics-text"
    assert text.endswith("# EOF\n")


def queried(node: Any) -> set[str]:
    """The metric names in every expression of a dashboard."""
    if isinstance(node, list):
        return set().union(*map(queried, node))
    if not isinstance(node, dict):
        return set()
    found = set().union(*(queried(value) for value in node.values()))
    expressions = [node[name] for name in ("expr", "query") if isinstance(node.get(name), str)]
    return found | {
        n for e in expressions for n in re.findall(r"(?:vllm|ninfer):\w+|process_\w+", e)
    }


async def test_the_dashboard_asks_only_for_metrics_that_exist(serve: Serve) -> None:
    dashboard = json.loads((ROOT / "docs/grafana/ninfer.json").read_text())
    names = queried(dashboard)
    async with serve(copying, ngram_archive_mib=16) as served, archive(served):
        await served.chat()
        await served.chat(temperature=-3)
        values = await scrape_until(
            served, lambda v: "ninfer:archive_bytes" in v and "vllm:num_requests_running" in v
        )
    assert len(names) > 20
    assert names - {sample.partition("{")[0] for sample in values} == set()


async def test_the_documentation_names_every_metric(serve: Serve) -> None:
    text = (ROOT / "docs/metrics.md").read_text()
    async with serve(copying) as served:
        await served.chat()
        async with served.http.get(f"{served.url}/metrics") as answer:
            families = list(text_string_to_metric_families(await answer.text()))
    names = {f.name for f in families if not f.name.startswith("process_")}
    documented = set(re.findall(r"`((?:vllm|ninfer):\w+)", text))
    missing = {n for n in names if n not in documented and f"{n}_total" not in documented}
    assert missing == set()
