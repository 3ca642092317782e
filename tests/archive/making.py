"""Small factories for the archive's tests."""

import numpy as np

from services.archive.archive import Archive, Part, Snapshot
from services.archive.store import ArchiveLimits
from shared.messages import SpanKind

MIB = 1 << 20


def make_archive(*, total: int = 8 * MIB, session: int = 4 * MIB, sessions: int = 32) -> Archive:
    limits = ArchiveLimits(total_bytes=total, session_bytes=session, sessions=sessions)
    return Archive(limits, clock=lambda: 1.0)


def text(seed: int, length: int = 100) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 49_152, length).astype(np.int32)


def part(seed: int, length: int = 100, kind: SpanKind = SpanKind.TEXT) -> Part:
    return Part(text(seed, length), kind)


def bound(archive: Archive, binding: str, key: bytes, **options: object) -> Snapshot:
    """Binds, and takes the snapshot as delivered."""
    snapshot = archive.bind(binding, key, **options)  # type: ignore[arg-type]
    assert isinstance(snapshot, Snapshot), snapshot
    archive.unpin(snapshot)
    return snapshot


def publish(archive: Archive, key: bytes, *parts: Part) -> int:
    """One whole request: its generation."""
    bound(archive, "request", key)
    session = archive.publish("request", parts)
    assert session is not None
    return session.generation


def held(archive: Archive, key: bytes) -> list[list[int]]:
    session = archive.store.get(key)
    assert session is not None
    return [entry.span.tokens.tolist() for entry in session.by_sight()]
