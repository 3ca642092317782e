"""The gateway's process: start, serve, drain."""

import asyncio
import contextlib
import errno
import json
from pathlib import Path

import uvloop
from aiohttp import web

from services.gateway.app import App
from services.gateway.chat import ChatService
from services.gateway.config import GatewayConfig, resolve
from services.gateway.engine_link import EngineLink
from services.gateway.indexer_link import IndexerLink
from services.gateway.request_log import RequestLog
from shared import endpoints, lifecycle, logs, options
from shared.errors import ConfigError
from shared.messages import Sampling
from shared.template import ChatTemplate
from shared.tokenizer import Tokenizer


def main(argv: list[str]) -> None:
    config = resolve(options.parse(GatewayConfig, argv, prog="services.gateway"))
    lifecycle.die_with_parent()
    logs.configure("gateway", level=config.log_level)
    uvloop.run(serve(config))


async def serve(config: GatewayConfig) -> None:
    stop = lifecycle.stop_event()
    channels = endpoints.in_directory(config.sockets)
    chat = build_chat(config, channels)
    runner = make_runner(App(chat).build(), config)
    await runner.setup()
    links = asyncio.create_task(chat.link.run())
    start_log = asyncio.create_task(_log_engines(chat))
    try:
        await web.TCPSite(runner, config.host, config.port).start()
    except OSError as exc:
        if exc.errno != errno.EADDRINUSE:
            raise ConfigError(f"cannot listen on {config.host}:{config.port}: {exc}") from exc
        raise ConfigError(f"port {config.port} is in use; choose another with --port") from exc
    else:
        lifecycle.announce(channels, "gateway", {"url": f"http://{config.host}:{config.port}"})
        waiting = asyncio.create_task(stop.wait())
        # the links run for ever: if they end, it is by a fault that must end the process
        await asyncio.wait([waiting, links], return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
    finally:
        await runner.cleanup()  # stops accepting, waits for handlers up to the drain time
        if chat.background:
            await asyncio.wait(chat.background, timeout=1.0)
        fault = links.exception() if links.done() else None
        for task in (links, start_log):
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError, BaseExceptionGroup):
                await task
        chat.link.close()
        chat.indexer.close()
        chat.log.close()
    if fault is not None:
        raise fault


def build_chat(config: GatewayConfig, channels: endpoints.Endpoints) -> ChatService:
    tokenizer = Tokenizer.load(config.model)
    assert config.model_id is not None
    return ChatService(
        config=config,
        model_id=config.model_id,
        tokenizer=tokenizer,
        template=ChatTemplate.load(config.model, tokenizer),
        sampling=sampling_defaults(config),
        link=EngineLink(channels.generate),
        indexer=IndexerLink(channels.build),
        log=RequestLog(config.request_log_jsonl),
        background=set(),
    )


def make_runner(application: web.Application, config: GatewayConfig) -> web.AppRunner:
    """The same for tests. A handler is cancelled when its client goes, which is not the default."""
    return web.AppRunner(
        application,
        handler_cancellation=True,
        access_log=None,
        shutdown_timeout=config.drain_s,
        keepalive_timeout=75.0,
    )


def sampling_defaults(config: GatewayConfig) -> Sampling:
    """Options, else the checkpoint's generation_config.json, else greedy. The seed is not used."""
    path: Path = config.model / "generation_config.json"
    model = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}

    def pick(name: str, fallback: float) -> float:
        own = getattr(config, name)
        return own if own is not None else model.get(name) or fallback

    return Sampling(
        temperature=float(pick("temperature", 0.0)),
        top_p=float(pick("top_p", 1.0)),
        top_k=int(pick("top_k", 0)),
        min_p=float(pick("min_p", 0.0)),
        seed=0,
    )


async def _log_engines(chat: ChatService) -> None:
    """One server_start line for each engine that reports ready."""
    event = asyncio.Event()
    chat.link.on_ready.append(event)
    seen = None
    while True:
        await event.wait()
        event.clear()
        ready = chat.link.ready
        if ready is not None and ready.instance_id != seen:
            seen = ready.instance_id
            chat.log.server_start(ready, chat.model_id)
