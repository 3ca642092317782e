"""Where each channel is: who binds, who connects, which union travels."""

import os
import stat
from dataclasses import dataclass
from pathlib import Path

from shared.errors import ConfigError


@dataclass(frozen=True)
class Endpoints:
    """One line per channel."""

    generate: str  # ROUTER bound by engine, DEALER by gateway: GatewayToEngine / EngineToGateway
    build: str  # PULL bound by indexer, PUSH by gateway: GatewayToIndexer
    indexes: str  # PULL bound by engine, PUSH by indexer: IndexerToEngine
    bind: str  # ROUTER bound by archive, DEALER by engine: EngineToArchive / ArchiveToEngine
    sessions: str  # ROUTER bound by archive, DEALER by gateway: GatewayToArchive / ArchiveToGateway
    supervisor: str  # PULL bound by the launcher, PUSH by every service: ServiceToSupervisor


def in_directory(directory: Path) -> Endpoints:
    """Unix sockets in `directory`, which only its owner may enter.

    Raises:
        ConfigError: the path is too long for a Unix socket, or others may enter the directory.
    """
    directory = directory.absolute()
    longest = directory / "supervisor.sock"
    if len(os.fsencode(longest)) > 100:  # sun_path holds 108 bytes on Linux, 104 on macOS
        raise ConfigError(f"--sockets {directory} is too long for Unix sockets; choose a shorter")
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    mode = stat.S_IMODE(directory.stat().st_mode)
    if mode & 0o077:
        raise ConfigError(f"--sockets {directory} has mode {mode:o}; it must be 700")
    return Endpoints(
        **{
            name: f"ipc://{directory / name}.sock"
            for name in ("generate", "build", "indexes", "bind", "sessions", "supervisor")
        }
    )
