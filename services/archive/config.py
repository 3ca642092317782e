"""The archive's options, and the limits they resolve to."""

import os
from dataclasses import dataclass
from pathlib import Path

from services.archive.store import ArchiveLimits
from shared.errors import ConfigError
from shared.logs import LEVELS
from shared.options import option

MIB = 1 << 20
DEFAULT_SESSION_MIB = 128


@dataclass(frozen=True)
class ArchiveConfig:
    sockets: Path = option(help="folder of the Unix sockets, mode 700", group="Processes")
    ngram_archive_mib: int = option(
        0,
        "memory for texts that sessions retain, MiB; 0 is off; needs --ngram-draft-tokens",
        group="Sessions",
    )
    ngram_session_mib: int | None = option(
        None,
        f"most that one session may hold of --ngram-archive-mib, MiB; "
        f"default {DEFAULT_SESSION_MIB}, or all if that is less",
    )
    log_level: str = option(
        "info", "what is logged on stderr, from this level on", choices=LEVELS, group="Observing"
    )


def resolve(config: ArchiveConfig) -> ArchiveLimits | None:
    """None when the archive is off.

    Raises:
        ConfigError: an option is out of range or without the other.
    """
    total, session = config.ngram_archive_mib, config.ngram_session_mib
    if total < 0:
        raise ConfigError(f"--ngram-archive-mib {total} is out of range; use 0 or more")
    memory_mib = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // MIB
    if total > memory_mib:
        raise ConfigError(
            f"--ngram-archive-mib {total} is more than this machine's memory of {memory_mib} MiB"
        )
    if not total:
        if session is not None:
            raise ConfigError("--ngram-session-mib needs --ngram-archive-mib")
        return None
    if session is None:
        session = min(DEFAULT_SESSION_MIB, total)
    if not 1 <= session <= total:
        raise ConfigError(
            f"--ngram-session-mib {session} is out of range; use 1 to {total} (--ngram-archive-mib)"
        )
    return ArchiveLimits(total_bytes=total * MIB, session_bytes=session * MIB)
