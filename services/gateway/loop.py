"""The gateway's process: start, serve, drain."""

import asyncio
import contextlib
import errno
import importlib
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass
from importlib.metadata import version

import uvloop
from aiohttp import web

from services.gateway import sampling
from services.gateway.admission import Admission
from services.gateway.app import App
from services.gateway.archive_link import ArchiveLink
from services.gateway.body_reader import BodyReader
from services.gateway.call_memory import CallMemory
from services.gateway.config import GatewayConfig, resolve
from services.gateway.connections import ConnectionRunner
from services.gateway.draft_records import DraftRecords
from services.gateway.draft_session import SessionNaming
from services.gateway.engine_link import EngineLink
from services.gateway.indexer_link import IndexerLink
from services.gateway.metrics import Metrics
from services.gateway.metrics_collector import LiveMetrics
from services.gateway.output.choice import tool_parser_of
from services.gateway.output_memory import OutputMemory
from services.gateway.page.recent import RecentRequests
from services.gateway.planner import Planner
from services.gateway.request_log import RequestLog, redact
from services.gateway.request_observer import RequestObserver
from services.gateway.service import GenerationService
from services.gateway.token_gaps import TokenGaps
from shared import endpoints, lifecycle, logs, options
from shared.errors import ConfigError, ShuttingDown
from shared.template import ChatTemplate
from shared.tokenizer import Tokenizer

LAST_WORDS_S = 1.0  # at the end, for error events and log lines of requests that were cut
POLL_S = 0.02


def main(argv: list[str]) -> None:
    config = resolve(options.parse(GatewayConfig, argv, prog="services.gateway"))
    logs.configure("gateway", level=config.log_level)
    uvloop.run(serve(config))


async def serve(config: GatewayConfig) -> None:
    stop = lifecycle.stop_event()
    channels = endpoints.in_directory(config.sockets)
    async with running(config, channels) as gateway:
        await listen(gateway.runner, config)
        url = f"http://{config.host}:{config.port}"
        lifecycle.announce(channels, "gateway", {"url": url})
        waiting = asyncio.create_task(stop.wait())
        # the link runs for ever: if it ends, it is by a fault that must end the process
        await asyncio.wait([waiting, gateway.link], return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()


@dataclass(frozen=True)
class Gateway:
    """A gateway that is connected, and answers as soon as its runner has a site."""

    runner: web.AppRunner
    link: asyncio.Task[None]


@contextlib.asynccontextmanager
async def running(config: GatewayConfig, channels: endpoints.Endpoints) -> AsyncIterator[Gateway]:
    """Leaving it drains the open requests."""
    service = build_service(config, channels)
    runner = ConnectionRunner(
        App(service).build(),
        service.log,
        config.max_connections,
        LAST_WORDS_S,  # for what `drain` left
    )
    await runner.setup()
    link = asyncio.create_task(service.link.run())
    try:
        yield Gateway(runner, link)
    finally:
        await drain(service, runner)
        await runner.cleanup()
        link.cancel()
        try:
            with contextlib.suppress(asyncio.CancelledError):
                await link
        finally:
            service.link.close()
            service.indexer.close()
            if service.archive is not None:
                service.archive.close()
            await asyncio.to_thread(service.log.close)  # it may send the last traces


async def drain(service: GenerationService, runner: web.AppRunner) -> None:
    """Stops accepting; open requests have the drain time to finish, then end with an error."""
    for site in list(runner.sites):
        await site.stop()
    service.admission.close()
    await _until_none_open(service, service.config.drain_s)
    service.link.abandon_all(ShuttingDown("the server is shutting down"))
    await _until_none_open(service, LAST_WORDS_S)


async def _until_none_open(service: GenerationService, within_s: float) -> None:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(within_s):
            while service.admission.open:
                await asyncio.sleep(POLL_S)


async def listen(runner: web.AppRunner, config: GatewayConfig) -> None:
    """Raises ConfigError: the address is taken or not ours."""
    try:
        await web.TCPSite(runner, config.host, config.port).start()
    except OSError as exc:
        if exc.errno == errno.EADDRINUSE:
            message = f"port {config.port} is in use; choose another with --port"
        else:
            message = f"cannot listen on {config.host}:{config.port}: {exc}"
        raise ConfigError(message) from exc


def build_service(config: GatewayConfig, channels: endpoints.Endpoints) -> GenerationService:
    """Raises ConfigError: the model folder or the log cannot be used."""
    assert config.model_id is not None
    tokenizer = Tokenizer.load(config.model)
    template = ChatTemplate.load(config.model, tokenizer)
    planner = Planner(
        model_id=config.model_id,
        tokenizer=tokenizer,
        template=template,
        tool_parser=tool_parser_of(config.tool_parser, template.source),
        sampling=sampling.defaults(config),
        default_max_tokens=config.default_max_tokens,
        queue_timeout_s=config.queue_timeout_s,
        sessions=SessionNaming(
            enabled=config.ngram_archive_mib > 0,
            native=config.ngram_native_sessions,
            tokenizer=tokenizer,
        ),
        calls=CallMemory(),
        outputs=OutputMemory(tokenizer),
    )
    metrics = Metrics(planner.model_id)
    observers: list[RequestObserver] = [metrics]
    if config.otlp_endpoint is not None:
        observers.append(_traces(config.otlp_endpoint, planner.model_id))
    log = RequestLog(
        config.request_log_jsonl,
        _describe(config, planner),
        observers,
        max_mib=config.request_log_max_mib,
        keep=config.request_log_keep,
    )
    link = EngineLink(channels.generate, log.server_start)
    indexer = IndexerLink(channels.build)
    archive = ArchiveLink(channels.sessions) if config.ngram_archive_mib else None
    admission, gaps = Admission(link), TokenGaps()
    return GenerationService(
        config=config,
        planner=planner,
        tokenizer=tokenizer,
        link=link,
        indexer=indexer,
        archive=archive,
        log=log,
        admission=admission,
        bodies=BodyReader(config.max_body_mib << 20, config.body_timeout_s),
        drafts=DraftRecords(config.draft_records),
        gaps=gaps,
        recent=RecentRequests(config.page_requests),
        metrics=LiveMetrics(
            metrics, link=link, indexer=indexer, archive=archive, admission=admission, gaps=gaps
        ),
    )


def _traces(endpoint: str, model_name: str) -> RequestObserver:
    # the SDK that it imports is an optional extra
    module = importlib.import_module("services.gateway.traces")
    traces: RequestObserver = module.Traces(
        endpoint, model_name=model_name, version=version("ninfer")
    )
    return traces


def _describe(config: GatewayConfig, planner: Planner) -> dict[str, object]:
    """For the log's server_start."""
    defaults = planner.sampling
    return {
        "model_id": planner.model_id,
        "host": config.host,
        "port": config.port,
        "has_api_key": config.api_key is not None,
        "max_body_mib": config.max_body_mib,
        "default_max_tokens": config.default_max_tokens,
        "tool_parser": planner.tool_parser,
        "sampling_defaults": {
            "temperature": defaults.temperature,
            "top_p": defaults.top_p,
            "top_k": defaults.top_k,
            "min_p": defaults.min_p,
        },
        "argv": redact(sys.argv[1:]),
    }
