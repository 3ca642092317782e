"""`--otlp-endpoint`: what a collector gets of a request, and that it gets no text."""

import contextlib
import importlib.util
from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from aiohttp import web
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
)

from services.gateway.config import GatewayConfig, resolve
from shared.errors import ConfigError
from shared.messages import SourceStats
from tests.gateway.conftest import Serve
from tests.scripted_engine import Turn, say

SECRET = "xyzzy-plugh"
TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


@dataclass
class Collector:
    """Takes OTLP over HTTP."""

    url: str = ""
    bodies: list[bytes] = field(default_factory=list)

    def spans(self) -> dict[str, Any]:
        """By their names."""
        found = {}
        for body in self.bodies:
            for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
                for scope in resource.scope_spans:
                    found |= {span.name: span for span in scope.spans}
        return found


def attributes(span: Any) -> dict[str, Any]:
    values = {}
    for pair in span.attributes:
        kind = pair.value.WhichOneof("value")
        value = getattr(pair.value, kind)
        values[pair.key] = (
            [item.string_value for item in value.values] if kind == "array_value" else value
        )
    return values


@contextlib.asynccontextmanager
async def collecting() -> AsyncIterator[Collector]:
    collector = Collector()

    async def take(http: web.Request) -> web.Response:
        assert http.path == "/v1/traces"
        collector.bodies.append(await http.read())
        return web.Response(content_type="application/x-protobuf")

    application = web.Application()
    application.router.add_route("POST", "/{tail:.*}", take)
    runner = web.AppRunner(application)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    collector.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield collector
    finally:
        await runner.cleanup()


async def copying(turn: Turn) -> None:
    turn.sources = (SourceStats(kind="tool", rounds=2, drafted_tokens=20, accepted_tokens=9),)
    await turn.tokens([70] * 12)
    await turn.finish("length")


async def test_a_request_is_a_span_under_the_callers_with_its_stages(serve: Serve) -> None:
    async with collecting() as collector:
        async with serve(copying, otlp_endpoint=collector.url) as served:
            body = {
                "messages": [{"role": "user", "content": SECRET}],
                "max_tokens": 12,
                "temperature": 0.5,
                "seed": 2**64 - 1,
            }
            headers = {"traceparent": f"00-{TRACE}-{PARENT}-01", "User-Agent": "test"}
            url = f"{served.url}/v1/chat/completions"
            async with served.http.post(url, json=body, headers=headers) as answer:
                assert answer.status == 200
            done = await served.wait_for_log("request_done")
        # what was waiting is sent at the gateway's end
        spans = collector.spans()
    assert set(spans) == {"chat tiny", "prepare", "queue", "prefill", "decode"}
    span = spans["chat tiny"]
    assert (span.trace_id.hex(), span.parent_span_id.hex()) == (TRACE, PARENT)
    assert all(spans[n].parent_span_id == span.span_id for n in spans if n != span.name)
    assert done["request"]["traceparent"] == f"00-{TRACE}-{PARENT}-01"
    found = attributes(span)
    assert found["gen_ai.operation.name"] == "chat"
    assert found["gen_ai.request.model"] == found["gen_ai.response.model"] == "tiny"
    assert found["gen_ai.response.id"] == done["request"]["request_id"]
    assert found["gen_ai.response.finish_reasons"] == ["length"]
    assert "gen_ai.request.choice.count" not in found
    assert found["gen_ai.usage.input_tokens"] == done["request"]["prompt_tokens"]
    assert found["gen_ai.usage.output_tokens"] == 12
    assert found["gen_ai.request.max_tokens"] == 12
    assert found["gen_ai.request.temperature"] == 0.5
    assert found["ninfer.request.seed"] == str(2**64 - 1)
    assert found["ninfer.accepted_tokens.tool"] == 9
    assert found["gen_ai.server.time_to_first_token"] > 0
    assert SECRET.encode() not in b"".join(collector.bodies)


async def test_several_choices_are_one_span(serve: Serve) -> None:
    async with collecting() as collector:
        async with serve(copying, otlp_endpoint=collector.url) as served:
            await served.chat(max_tokens=12, n=3)
        spans = collector.spans()
    assert set(spans) == {"chat tiny", "prepare", "queue", "prefill", "decode"}
    found = attributes(spans["chat tiny"])
    assert found["gen_ai.request.choice.count"] == 3
    assert found["gen_ai.response.finish_reasons"] == ["length"] * 3
    assert found["gen_ai.usage.output_tokens"] == 36


async def test_stages_follow_one_another_inside_the_request(serve: Serve) -> None:
    async with collecting() as collector:
        async with serve(copying, otlp_endpoint=f"{collector.url}/v1/traces") as served:
            await served.chat(max_tokens=12)
        spans = collector.spans()
    whole = spans["chat tiny"]
    stages = [spans[name] for name in ("prepare", "queue", "prefill", "decode")]
    assert stages[0].start_time_unix_nano == whole.start_time_unix_nano
    for before, after in zip(stages, [*stages[1:], None], strict=True):
        assert before.start_time_unix_nano <= before.end_time_unix_nano
        assert before.end_time_unix_nano <= whole.end_time_unix_nano
        if after is not None:
            assert after.start_time_unix_nano == before.end_time_unix_nano


async def test_a_failure_is_an_error_with_its_code_alone(serve: Serve) -> None:
    async def failing(turn: Turn) -> None:
        await turn.fail("server_error", SECRET)

    async with collecting() as collector:
        async with serve(failing, otlp_endpoint=collector.url) as served:
            await served.chat()
            async with served.http.get(f"{served.url}/nowhere") as answer:
                assert answer.status == 404
        spans = collector.spans()
    assert list(spans) == ["chat tiny"]
    found = attributes(spans["chat tiny"])
    assert (found["error.type"], found["ninfer.phase"]) == ("server_error", "generate")
    assert spans["chat tiny"].status.code == 2
    assert SECRET.encode() not in b"".join(collector.bodies)


@pytest.mark.parametrize(
    "value", ["", "junk", f"00-{TRACE}-{PARENT}", f"00-{'0' * 32}-{PARENT}-01"]
)
async def test_a_bad_traceparent_begins_a_trace_of_its_own(serve: Serve, value: str) -> None:
    async with collecting() as collector:
        async with serve(copying, otlp_endpoint=collector.url) as served:
            url = f"{served.url}/v1/chat/completions"
            body = {"messages": [{"role": "user", "content": "hi"}]}
            async with served.http.post(url, json=body, headers={"traceparent": value}) as answer:
                assert answer.status == 200
        span = collector.spans()["chat tiny"]
    assert span.parent_span_id == b""
    assert span.trace_id.hex() != TRACE


async def test_an_absent_collector_costs_no_answer(serve: Serve) -> None:
    async with collecting() as collector:
        url = collector.url
    async with serve(say([[70]]), otlp_endpoint=url) as served:
        status, _ = await served.chat()
    assert status == 200


def test_without_the_sdk_the_option_is_refused(
    config: GatewayConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    def absent(name: str) -> None:
        raise ModuleNotFoundError(name)

    monkeypatch.setattr(importlib.util, "find_spec", absent)
    with pytest.raises(ConfigError, match=r"needs OpenTelemetry: pip install 'ninfer\[otel\]'"):
        resolve(replace(config, otlp_endpoint="http://127.0.0.1:4318"))
    assert resolve(config).otlp_endpoint is None


def test_an_endpoint_without_a_scheme_is_refused(config: GatewayConfig) -> None:
    with pytest.raises(ConfigError, match="--otlp-endpoint 127"):
        resolve(replace(config, otlp_endpoint="127.0.0.1:4318"))
