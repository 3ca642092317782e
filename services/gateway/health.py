"""Which of the processes serve, as this gateway sees it."""

from services.gateway.archive_link import ArchiveLink
from services.gateway.engine_link import EngineLink
from services.gateway.indexer_link import IndexerLink


def services_up(
    link: EngineLink, indexer: IndexerLink, archive: ArchiveLink | None
) -> dict[str, bool]:
    """The archive only if there shall be one."""
    up = {"gateway": True, "engine": link.ready is not None, "indexer": indexer.is_there}
    return up if archive is None else up | {"archive": archive.is_there}
