"""What a draft session does to a request, and what is said of it in log and answer."""

import asyncio
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from services.gateway.identity import GENERATION, Headers, Identity, resolve
from services.gateway.prompt_parts import prompt_parts
from services.gateway.request import Request
from shared.messages import ArchiveStats, DraftSession, Finished, Generate
from shared.session_names import public_id
from shared.tokenizer import Tokenizer

OFF = "archive_off"


@dataclass(frozen=True)
class NamedSession:
    """The session of one request, if it names one."""

    enabled: bool = False
    identity: Identity = Identity()
    sampling_seed: int | None = None  # what the draws depend on, where that is not the caller's

    @property
    def session_id(self) -> str | None:
        return None if self.identity.key is None else public_id(self.identity.key)

    def stats(self, finished: Finished) -> ArchiveStats | None:
        """What became of it; None if the request named none."""
        if finished.archive is not None or self.identity.reason is None:
            return finished.archive
        return ArchiveStats(
            bound=False,
            reason=self.identity.reason,
            published=False,
            generation=0,
            sources=0,
            session_bytes=0,
            total_bytes=0,
        )

    def logged(self, finished: Finished) -> dict[str, Any]:
        """The log's `ngram_archive`: every field in every line."""
        stats = self.stats(finished)
        fields = {name: getattr(stats, name, None) for name in ArchiveStats.__struct_fields__}
        if stats is None:
            fields |= {"bound": False, "published": False, "generation": 0}
        return {"enabled": self.enabled, **fields, "sampling_seed": self.sampling_seed}


@dataclass(frozen=True)
class SessionNaming:
    """Finds a request's session and adds it to the request; one per process."""

    enabled: bool
    native: bool
    tokenizer: Tokenizer

    async def apply(
        self, generate: Generate, request: Request, headers: Mapping[str, str]
    ) -> tuple[Generate, NamedSession]:
        """A named session mixes the seed with fresh random bits, so that what is retained cannot
        depend on the draws that will accept it."""
        if not self.enabled:
            # nothing is retained, and whoever named a session is told so
            asked = resolve(Headers.of(headers), None, None, native=False)
            named = asked.key is not None or asked.reason is not None
            return generate, NamedSession(identity=Identity(reason=OFF if named else None))
        identity = resolve(
            Headers.of(headers), request.client_metadata, request.metadata, native=self.native
        )
        if identity.key is None:
            return generate, NamedSession(True, identity)
        seed = generate.sampling.seed ^ secrets.randbits(64)
        sampling = msgspec.structs.replace(generate.sampling, seed=seed)
        generate = msgspec.structs.replace(generate, sampling=sampling)
        if identity.reason is None:
            parts = await asyncio.to_thread(prompt_parts, generate.prompt_ids, self.tokenizer)
            session = DraftSession(
                key=identity.key,
                fork=identity.fork,
                reset=identity.reset,
                parts=parts,
                thinking=self.tokenizer.thinking_ids,
            )
            generate = msgspec.structs.replace(generate, session=session)
        return generate, NamedSession(True, identity, seed)


def generation_header(stats: ArchiveStats | None) -> dict[str, str]:
    """For a whole answer."""
    return {GENERATION: str(stats.generation)} if stats and stats.generation else {}


def generation_comment(stats: ArchiveStats | None) -> bytes:
    """For a stream, in front of its terminal events."""
    if stats is None or not stats.generation:
        return b""
    return b": ninfer-draft-generation: %d\n\n" % stats.generation


def session_object(stats: ArchiveStats | None) -> dict[str, Any]:
    """For the body's `ninfer` object, for clients that cannot read headers."""
    if stats is None:
        return {}
    shown = {"bound": stats.bound, "published": stats.published, "reason": stats.reason}
    generation = {"generation": stats.generation} if stats.generation else {}
    return {"draft_session": shown | generation}
