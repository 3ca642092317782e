"""The archive in this process, behind the messages of the real one but without sockets."""

from services.archive.archive import Archive
from services.archive.desk import Desk
from services.archive.store import ArchiveLimits
from services.engine.archive_link import FromArchive, SessionReady
from services.engine.post import ArchiveAnswer, Inbound
from services.engine.session_indexes import SessionIndexes
from services.engine.span_cache import SpanCache
from shared.messages import Attach, Bind, Bound, Publish, Release
from shared.session_names import split_ids

MIB = 1 << 20
ENGINE_ID = "local"


class LocalArchive:
    """Answers go into `inbound`, the engine's queue; while `holding` they wait in `held`."""

    def __init__(self, *, total: int = 8 * MIB, session: int = 8 * MIB) -> None:
        self.archive = Archive(ArchiveLimits(total_bytes=total, session_bytes=session))
        self.desk = Desk(self.archive)
        self.desk.from_engine(Attach(engine_id=ENGINE_ID, generation_floor=0, bindings=()))
        self.inbound: list[Inbound] = []
        self.sent: list[Bind | Publish | Release] = []
        self.holding = False
        self.deaf = False
        self.held: list[FromArchive] = []
        self._spans = SpanCache(total)
        self._indexes = SessionIndexes(total)

    def send(self, message: Bind | Publish | Release) -> None:
        self.sent.append(message)
        if self.deaf:
            return
        for answer in self.desk.from_engine(message):
            self.desk.delivered(answer)
            reply = answer.message
            if isinstance(reply, Bound):
                assert isinstance(message, Bind)
                self._answer(self._ready(reply, message.key))
            else:
                self._answer(reply)  # type: ignore[arg-type]
        self.archive.check()

    def let_go(self) -> None:
        """Delivers what was held."""
        self.holding = False
        self.inbound += [ArchiveAnswer(message) for message in self.held]
        self.held.clear()

    def _answer(self, message: FromArchive) -> None:
        self.held.append(message)
        if not self.holding:
            self.let_go()

    def _ready(self, bound: Bound, key: bytes) -> SessionReady:
        there = self._spans.known()
        for span_id, tokens in zip(split_ids(bound.missing), bound.spans, strict=True):
            there[span_id] = self._spans.add(span_id, tokens)
        span_ids = split_ids(bound.span_ids)
        return SessionReady(
            binding=bound.binding,
            indexes=self._indexes.build(key, span_ids, [there[i] for i in span_ids]),
            sources=len(span_ids),
            session_bytes=bound.session_bytes,
            total_bytes=bound.total_bytes,
        )
