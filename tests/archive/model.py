"""The archive as plain as it can be: lists and sums from scratch, for tests to compare with.

It forgets nothing: which entries are evicted is not its business, only what the archive may hold
at all, who is bound, and which generation is whose.
"""

from dataclasses import dataclass, field

from shared.messages import SpanKind

Content = tuple[int, ...]


@dataclass
class ModelSession:
    owner: str | None = None
    generation: int = 0
    # every content that was ever published into it, with the highest kind it had
    published: dict[Content, SpanKind] = field(default_factory=dict)


@dataclass
class ModelArchive:
    max_sessions: int
    generation: int = 0
    sessions: dict[bytes, ModelSession] = field(default_factory=dict)  # longest unseen first
    revoked: set[str] = field(default_factory=set)

    def see(self, key: bytes) -> None:
        self.sessions[key] = self.sessions.pop(key)

    def remove(self, key: bytes) -> None:
        session = self.sessions.pop(key, None)
        if session is not None and session.owner is not None:
            self.revoked.add(session.owner)

    def bind(
        self, binding: str, key: bytes, parent: bytes | None, number: int, reset: bool
    ) -> str | None:
        """Why it is not bound, or None."""
        if reset and parent is not None:
            return "reset_with_parent"
        if reset:
            self.remove(key)
        inherited: dict[Content, SpanKind] = {}
        if parent is not None:
            if parent == key:
                return "parent_is_session"
            if key in self.sessions:
                return "session_exists"
            if parent not in self.sessions:
                return "unknown_parent"
            if number == 0 or self.sessions[parent].generation != number:
                return "stale_generation"
            self.see(parent)
            inherited = dict(self.sessions[parent].published)
        if key not in self.sessions:
            if len(self.sessions) >= self.max_sessions:
                idle = [k for k, s in self.sessions.items() if s.owner is None]
                if not idle:
                    return "sessions_busy"
                del self.sessions[idle[0]]
            self.sessions[key] = ModelSession(published=inherited)
        elif self.sessions[key].owner is not None:
            return "busy"
        self.sessions[key].owner = binding
        self.see(key)
        return None

    def publish(self, binding: str, contents: list[tuple[Content, SpanKind]]) -> int | None:
        """The generation, or None if the binding has no session (any more)."""
        for key, session in self.sessions.items():
            if session.owner == binding:
                session.owner = None
                for content, kind in contents:
                    session.published[content] = max(kind, session.published.get(content, kind))
                self.generation += 1
                session.generation = self.generation
                self.see(key)
                return self.generation
        return None

    def release(self, binding: str) -> None:
        for session in self.sessions.values():
            if session.owner == binding:
                session.owner = None

    def clear(self) -> None:
        for key in list(self.sessions):
            self.remove(key)
