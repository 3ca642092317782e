"""Start and end of the indexer's process."""

import uvloop

from services.indexer.builder import Builder
from services.indexer.config import IndexerConfig, resolve_context
from services.indexer.loop import Indexer
from shared import endpoints, lifecycle, logs, options
from shared.tokenizer import Tokenizer


def main(argv: list[str]) -> None:
    config = options.parse(IndexerConfig, argv, prog="services.indexer")
    logs.configure("indexer", level=config.log_level)
    channels = endpoints.in_directory(config.sockets)
    context = resolve_context(config)
    tokenizer = Tokenizer.load(config.model)
    builder = Builder(tokenizer, context)
    uvloop.run(serve(channels, builder, {"max_context": str(context)}))


async def serve(channels: endpoints.Endpoints, builder: Builder, facts: dict[str, str]) -> None:
    """Serves until SIGTERM or SIGINT."""
    stop = lifecycle.stop_event()
    indexer = Indexer(channels, builder)
    try:
        lifecycle.announce(channels, "indexer", facts)
        await indexer.run(stop)
    finally:
        indexer.close()
