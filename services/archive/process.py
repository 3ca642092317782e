"""Start and end of the archive's process."""

import signal
import threading

from services.archive.archive import Archive
from services.archive.config import ArchiveConfig, resolve
from services.archive.loop import ArchiveLoop
from shared import endpoints, lifecycle, logs, options
from shared.errors import ConfigError


def main(argv: list[str]) -> None:
    config = options.parse(ArchiveConfig, argv, prog="services.archive")
    logs.configure("archive", level=config.log_level)
    limits = resolve(config)
    if limits is None:
        raise ConfigError("there is nothing to do without --ngram-archive-mib")
    channels = endpoints.in_directory(config.sockets)
    stopping = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopping.set())
    loop = ArchiveLoop(channels, Archive(limits))
    try:
        facts = {
            "archive_mib": str(config.ngram_archive_mib),
            "session_mib": str(limits.session_bytes >> 20),
        }
        lifecycle.announce(channels, "archive", facts)
        loop.run(stopping)
    finally:
        loop.close()
