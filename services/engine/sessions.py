"""`Sessions`: which requests are bound to the archive, and what they publish at their end.

A request is bound when it gets its slot and published when it has ended normally; its `Finished`
then waits for the generation, but never beyond a deadline. Nothing else ever waits for the archive.
"""

import time
from collections.abc import Collection
from dataclasses import dataclass
from typing import Protocol, assert_never

import msgspec
import numpy as np

from services.engine.archive_link import ArchiveAbsent, FromArchive, SessionReady
from services.engine.drafting.router import DraftRouter
from services.engine.request import Request
from services.engine.retained import output_parts
from shared.matching.contexts import BOUNDARY
from shared.messages import (
    ArchiveStats,
    Bind,
    Finished,
    NotPublished,
    Publish,
    Published,
    Release,
    Revoked,
    SpanKind,
    Unbound,
)

# An archive that works answers in a few milliseconds; the client's last event waits for this.
PUBLISH_WAIT_S = 0.5
NOTHING_KNOWN = np.empty(0, np.uint64)

Ended = tuple[bytes, Finished]  # the gateway to tell


class Archive(Protocol):
    """What is needed of `ArchiveLink`."""

    def send(self, message: Bind | Publish | Release) -> None: ...


@dataclass
class _Binding:
    """`reason` says why it is not (or no longer) bound; "waiting" while nobody has answered."""

    bound: bool = False
    reason: str | None = "waiting"
    sources: int = 0
    session_bytes: int = 0
    total_bytes: int = 0

    @property
    def may_publish(self) -> bool:
        return self.reason in (None, "waiting")

    def stats(self, *, generation: int = 0, published: bool = False) -> ArchiveStats:
        return ArchiveStats(
            bound=self.bound,
            reason=self.reason,
            published=published,
            generation=generation,
            sources=self.sources,
            session_bytes=self.session_bytes,
            total_bytes=self.total_bytes,
        )


@dataclass
class _Publication:
    gateway: bytes
    finished: Finished
    binding: _Binding
    due_s: float


class Sessions:
    """Without an `archive` every request stays as it is."""

    def __init__(
        self,
        archive: Archive | None,
        drafters: DraftRouter,
        engine_id: str,
        *,
        boundary_ids: Collection[int],
        vocab_size: int,
    ) -> None:
        self._archive = archive
        self._drafters = drafters
        self._engine_id = engine_id
        self._is_boundary = np.zeros(vocab_size, bool)
        self._is_boundary[[i for i in boundary_ids if i < vocab_size]] = True
        self._bindings: dict[str, _Binding] = {}
        self._publications: dict[str, _Publication] = {}

    def bind(self, request: Request) -> None:
        """Asks for the session's snapshot as it is now; it is used whenever it comes."""
        session = request.generate.session
        if self._archive is None or session is None:
            return
        self._bindings[request.request_id] = _Binding()
        self._archive.send(
            Bind(
                engine_id=self._engine_id,
                binding=request.request_id,
                key=session.key,
                fork=session.fork,
                reset=session.reset,
                known=NOTHING_KNOWN,
            )
        )

    def end(self, request: Request, finished: Finished) -> Finished | None:
        """The message to send now; None if it first waits for its generation."""
        if self._archive is None or request.generate.session is None:
            return finished
        binding = self._bindings.pop(request.request_id, None)
        if binding is None:  # it never got a slot
            binding = _Binding(reason="cancelled")
        elif finished.reason == "cancelled":
            self._archive.send(Release(binding=request.request_id))
            binding.reason = "cancelled"
        elif binding.may_publish:
            self._archive.send(self._publication(request))
            due_s = time.monotonic() + PUBLISH_WAIT_S
            self._publications[request.request_id] = _Publication(
                request.gateway, finished, binding, due_s
            )
            return None
        return msgspec.structs.replace(finished, archive=binding.stats())

    def drop(self, request_id: str) -> None:
        """The request is over; if it has not ended normally, nothing of it is kept."""
        if self._archive is not None and self._bindings.pop(request_id, None) is not None:
            self._archive.send(Release(binding=request_id))

    def hear(self, message: FromArchive) -> list[Ended]:
        """Whom the answer has ended. An answer that comes too late is nobody's."""
        match message:
            case SessionReady():
                self._take_snapshot(message)
            case Unbound() | Revoked() | ArchiveAbsent() | NotPublished():
                return self._refuse(message)
            case Published():
                return self._published(message)
            case _:
                assert_never(message)
        return []

    def overdue(self) -> list[Ended]:
        """Those whose publication was not confirmed in time."""
        now_s = time.monotonic()
        late = [name for name, p in self._publications.items() if now_s >= p.due_s]
        return [self._unpublished(name, "publish_late") for name in late]

    def give_up(self) -> list[Ended]:
        """At a shutdown."""
        return [self._unpublished(name, "shutdown") for name in list(self._publications)]

    def patience_s(self, idle_s: float) -> float:
        """How long the loop may sleep without missing a deadline."""
        dues = [publication.due_s for publication in self._publications.values()]
        return min([idle_s, *(max(0.001, due_s - time.monotonic()) for due_s in dues)])

    # -- answers -------------------------------------------------------------------------------

    def _take_snapshot(self, ready: SessionReady) -> None:
        binding = self._bindings.get(ready.binding)
        if binding is None or not binding.may_publish:
            return
        binding.bound, binding.reason = True, None
        binding.sources = ready.sources
        binding.session_bytes, binding.total_bytes = ready.session_bytes, ready.total_bytes
        self._drafters.add_sources(ready.binding, [("session", index) for index in ready.indexes])

    def _refuse(self, message: Unbound | Revoked | ArchiveAbsent | NotPublished) -> list[Ended]:
        reason = _reason(message)
        publication = self._publications.get(message.binding)
        if publication is None:
            binding = self._bindings.get(message.binding)
            if binding is not None:
                binding.reason = reason
                self._drafters.drop_sources(message.binding, "session")
            return []
        if publication.binding.may_publish:  # else the first reason says more
            publication.binding.reason = reason
        if isinstance(message, Unbound | Revoked):  # the refusal to publish follows
            return []
        return [self._unpublished(message.binding, publication.binding.reason or reason)]

    def _published(self, message: Published) -> list[Ended]:
        publication = self._publications.pop(message.binding, None)
        if publication is None:
            return []
        binding = publication.binding
        binding.bound, binding.reason = True, None
        binding.sources = message.sources
        binding.session_bytes, binding.total_bytes = message.session_bytes, message.total_bytes
        stats = binding.stats(generation=message.generation, published=True)
        return [_ended(publication, stats)]

    def _unpublished(self, request_id: str, reason: str) -> Ended:
        publication = self._publications.pop(request_id)
        publication.binding.reason = reason
        return _ended(publication, publication.binding.stats())

    # -- what is published -----------------------------------------------------------------------

    def _publication(self, request: Request) -> Publish:
        """The prompt's parts, what the indexer derived from it, and the output."""
        session = request.generate.session
        assert session is not None
        own = request.ledger.tokens.copy()
        prompt_len = request.ledger.prompt_len
        output = output_parts(own, prompt_len, session.thinking)
        own[self._is_boundary[own]] = BOUNDARY
        derived = self._drafters.tokens_of(request.request_id, "derived")
        parts = [session.parts]
        end = len(own)
        for tokens in derived:
            parts.append(np.array([end, end + len(tokens), SpanKind.TOOL], np.int32))
            end += len(tokens)
        return Publish(
            binding=request.request_id,
            tokens=np.concatenate([own, *derived]),
            parts=np.concatenate([*parts, output]),
        )


def _reason(message: Unbound | Revoked | ArchiveAbsent | NotPublished) -> str:
    match message:
        case Unbound(reason=reason):
            return reason
        case Revoked():
            return "revoked"
        case ArchiveAbsent():
            return "archive_absent"
        case NotPublished():  # without a Revoked before it
            return "archive_restarted"
        case _:
            assert_never(message)


def _ended(publication: _Publication, stats: ArchiveStats) -> Ended:
    finished = msgspec.structs.replace(publication.finished, archive=stats)
    return publication.gateway, finished
