"""`Desk`: messages in, messages out, over the archive. No sockets, no waiting."""

import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import assert_never

from services.archive.archive import Archive, Fork, Part, Snapshot
from shared.messages import (
    ArchiveToEngine,
    ArchiveToGateway,
    Attach,
    Attached,
    Bind,
    Bound,
    Deleted,
    DeleteSessions,
    EngineToArchive,
    Forget,
    GatewayToArchive,
    ListSessions,
    NotPublished,
    Publish,
    Published,
    Release,
    Revoked,
    SessionFacts,
    Sessions,
    SpanKind,
    Unbound,
)
from shared.session_names import join_ids, split_ids


class BadMessage(Exception):
    """A message that decodes but contradicts itself."""


@dataclass(frozen=True)
class ToEngine:
    message: ArchiveToEngine
    snapshot: Snapshot | None = None  # to unpin once the message is delivered


class Desk:
    def __init__(self, archive: Archive) -> None:
        self.archive_id = uuid.uuid4().hex
        self._archive = archive

    def from_engine(self, message: EngineToArchive) -> list[ToEngine]:
        """The answers, revocations of other requests first.

        Raises:
            BadMessage: nothing was done.
        """
        match message:
            case Attach():
                self._archive.attach(message.engine_id, message.generation_floor, message.bindings)
                total = self._archive.store.total_bytes
                answer = ToEngine(Attached(archive_id=self.archive_id, total_bytes=total))
                return [*self._revoked(), answer]
            case Bind():
                answer = self._bind(message)
                return [*self._revoked(), answer]
            case Publish():
                return [self._publish(message)]
            case Release(binding=binding):
                self._archive.release(binding)
                return []
            case _:
                assert_never(message)

    def from_gateway(self, message: GatewayToArchive) -> tuple[ArchiveToGateway, list[ToEngine]]:
        """The answer, and whom a deletion has revoked."""
        match message:
            case ListSessions(ticket=ticket):
                return self._sessions(ticket), []
            case DeleteSessions(ticket=ticket, session_id=session_id):
                if session_id is None:
                    count = self._archive.delete_all()
                else:
                    count = int(self._archive.delete(session_id))
                told = [*self._revoked(), ToEngine(Forget())]
                return Deleted(ticket=ticket, sessions=count), told
            case _:
                assert_never(message)

    def delivered(self, answer: ToEngine) -> None:
        """Its frames are no longer in use. Once for each answer."""
        if answer.snapshot is not None:
            self._archive.unpin(answer.snapshot)

    def undeliverable(self, answer: ToEngine) -> None:
        """The engine never learns of it, so a binding must not stay behind."""
        self.delivered(answer)
        if isinstance(answer.message, Bound):
            self._archive.release(answer.message.binding)

    def _revoked(self) -> Iterator[ToEngine]:
        for binding in self._archive.take_revoked():
            yield ToEngine(Revoked(binding=binding))

    def _bind(self, message: Bind) -> ToEngine:
        store = self._archive.store
        if not self._archive.is_attached(message.engine_id):
            return ToEngine(
                Unbound(
                    binding=message.binding, reason="not_attached", total_bytes=store.total_bytes
                )
            )
        fork = message.fork
        outcome = self._archive.bind(
            message.binding,
            message.key,
            fork=None if fork is None else Fork(fork.parent, fork.generation),
            reset=message.reset,
            known=frozenset(split_ids(message.known)),
        )
        if not isinstance(outcome, Snapshot):
            unbound = Unbound(
                binding=message.binding, reason=outcome, total_bytes=store.total_bytes
            )
            return ToEngine(unbound)
        bound = Bound(
            binding=message.binding,
            generation=outcome.generation,
            span_ids=join_ids(outcome.span_ids),
            missing=join_ids([span.span_id for span in outcome.missing]),
            spans=tuple(span.tokens for span in outcome.missing),
            session_bytes=outcome.session_bytes,
            total_bytes=store.total_bytes,
        )
        return ToEngine(bound, outcome)

    def _publish(self, message: Publish) -> ToEngine:
        store = self._archive.store
        session = self._archive.publish(message.binding, parts_of(message))
        if session is None:
            refused = NotPublished(binding=message.binding, total_bytes=store.total_bytes)
            return ToEngine(refused)
        published = Published(
            binding=message.binding,
            generation=session.generation,
            sources=session.count,
            session_bytes=session.nbytes,
            total_bytes=store.total_bytes,
        )
        return ToEngine(published)

    def _sessions(self, ticket: int) -> Sessions:
        store = self._archive.store
        return Sessions(
            ticket=ticket,
            sessions=tuple(
                SessionFacts(
                    session_id=session.public_id,
                    generation=session.generation,
                    sources=session.count,
                    session_bytes=session.nbytes,
                    bound=session.owner is not None,
                    last_used_unix_s=session.last_used_s,
                )
                for session in store.sessions
            ),
            total_bytes=store.total_bytes,
            capacity_bytes=store.limits.total_bytes,
            evicted_spans=store.evicted,
        )


def parts_of(message: Publish) -> list[Part]:
    """Raises BadMessage: a part outside of the tokens, or of no kind."""
    if len(message.parts) % 3:
        raise BadMessage("parts are not triples")
    parts = []
    for start, stop, kind in message.parts.reshape(-1, 3).tolist():
        if not 0 <= start <= stop <= len(message.tokens):
            raise BadMessage(f"a part from {start} to {stop} of {len(message.tokens)} tokens")
        if not 0 <= kind < len(SpanKind):
            raise BadMessage(f"a part of kind {kind}")
        parts.append(Part(message.tokens[start:stop], SpanKind(kind)))
    return parts
