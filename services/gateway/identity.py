"""Which draft session a request names. Pure: headers and body in, a name or a reason out.

Names route; they do not authenticate. An explicit header always decides alone. Native names are
what Kilo, Codex and Claude Code send anyway; keys, `user` and `prompt_cache_key` are never names.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from shared.messages import SessionFork

SESSION = "X-NInfer-Draft-Session"
PARENT = "X-NInfer-Draft-Parent"
GENERATION = "X-NInfer-Draft-Generation"
RESET = "X-NInfer-Draft-Reset"
KILO = "x-session-affinity"

LONGEST_BYTES = 240
LONGEST_USER_ID_BYTES = 4096
LARGEST_GENERATION = 2**64 - 1


@dataclass(frozen=True)
class Identity:
    """No key and no reason: the request names no session. A key and a reason: it names one, but
    in a way that cannot be bound."""

    key: bytes | None = None
    fork: SessionFork | None = None
    reset: bool = False
    reason: str | None = None


@dataclass(frozen=True)
class Headers:
    """All values of each header that counts, as bytes; HTTP has stripped the outer spaces."""

    session: Sequence[bytes] = ()
    parent: Sequence[bytes] = ()
    generation: Sequence[bytes] = ()
    reset: Sequence[bytes] = ()
    kilo: Sequence[bytes] = ()

    @classmethod
    def of(cls, headers: Mapping[str, str]) -> "Headers":
        """`headers` is the multi-dict of an HTTP request."""
        getall = getattr(headers, "getall", None)
        assert getall is not None, "headers may come twice, so a plain dict will not do"

        def values(name: str) -> tuple[bytes, ...]:
            # as aiohttp decoded them, so bytes that are no UTF-8 come back as they were
            return tuple(v.encode("utf-8", "surrogateescape") for v in getall(name, ()))

        return cls(*map(values, (SESSION, PARENT, GENERATION, RESET, KILO)))


def resolve(headers: Headers, client_metadata: Any, metadata: Any, *, native: bool) -> Identity:
    """`client_metadata` and `metadata` are the body's, as unchecked JSON values."""
    if headers.session:
        if len(headers.session) > 1 or not _is_name(headers.session[0]):
            return Identity(reason="malformed_session")
        return _with_wishes(b"explicit:" + headers.session[0], headers)
    if headers.parent or headers.generation:
        return Identity(reason="parent_without_session")
    names = list(_native(headers, client_metadata, metadata)) if native else []
    if not names:
        return Identity(reason="reset_without_session" if headers.reset else None)
    if len(names) > 1:
        return Identity(reason="ambiguous_session")
    if names[0] is None:
        return Identity(reason="malformed_session")
    return _with_wishes(names[0], headers)


def _with_wishes(key: bytes, headers: Headers) -> Identity:
    """The key with what the headers ask for; the first contradiction is the reason."""
    if headers.reset and tuple(headers.reset) != (b"1",):
        return Identity(key, reason="malformed_reset")
    if bool(headers.parent) != bool(headers.generation):
        return Identity(key, reason="parent_and_generation_need_each_other")
    if not headers.parent:
        return Identity(key, reset=bool(headers.reset))
    if headers.reset:
        return Identity(key, reason="reset_with_parent")
    if len(headers.parent) > 1 or not _is_name(headers.parent[0]):
        return Identity(key, reason="malformed_parent")
    generation = _generation(headers.generation)
    if generation is None:
        return Identity(key, reason="malformed_generation")
    parent = b"explicit:" + headers.parent[0]
    if parent == key:
        return Identity(key, reason="parent_is_session")
    return Identity(key, SessionFork(parent=parent, generation=generation))


def _native(headers: Headers, client_metadata: Any, metadata: Any) -> Iterator[bytes | None]:
    """A key for each client that has named a session; None for a name that cannot be one."""
    if headers.kilo:
        name = headers.kilo[0]
        yield b"kilo:" + name if len(headers.kilo) == 1 and _is_name(name) else None
    if isinstance(client_metadata, dict) and isinstance(client_metadata.get("thread_id"), str):
        thread_id = client_metadata["thread_id"]
        session_id = client_metadata.get("session_id")
        differs = isinstance(session_id, str) and session_id not in ("", thread_id)
        yield None if differs else _key(b"codex:", thread_id)
    if isinstance(metadata, dict) and isinstance(metadata.get("user_id"), str):
        session_id = _claude_session(metadata["user_id"])
        if session_id is not None:
            yield _key(b"claude:", session_id)


def _claude_session(user_id: str) -> str | None:
    """The session in Claude Code's user id, a JSON object in a string; None if it is none."""
    if len(user_id.encode("utf-8", "surrogatepass")) > LONGEST_USER_ID_BYTES:
        return None
    try:
        value = json.loads(user_id)
    except (ValueError, RecursionError):
        return None
    session_id = value.get("session_id") if isinstance(value, dict) else None
    return session_id if isinstance(session_id, str) and session_id else None


def _key(namespace: bytes, name: str) -> bytes | None:
    raw = name.encode("utf-8", "surrogatepass")
    return namespace + raw if _is_name(raw) else None


def _is_name(raw: bytes) -> bool:
    return 1 <= len(raw) <= LONGEST_BYTES and all(byte > 0x20 and byte != 0x7F for byte in raw)


def _generation(values: Sequence[bytes]) -> int | None:
    """A decimal uint64 above 0, written with digits alone."""
    if len(values) != 1 or not values[0].isdigit() or len(values[0]) > 20:
        return None
    number = int(values[0])
    return number if 0 < number <= LARGEST_GENERATION else None
