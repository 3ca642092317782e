"""All messages between processes, and nothing else.

Order: shared values, gateway -> engine, engine -> gateway, gateway -> indexer,
indexer -> engine, engine <-> archive, gateway <-> archive, lifecycle. Arrays (`Tokens` and the
index arrays) travel as frames behind the encoded header (see `shared/wire.py`); everything else is
in the header.
"""

import enum
from typing import Literal

import numpy as np

from shared.sampling import Grammar as Grammar
from shared.sampling import Sampling as Sampling
from shared.sampling import Speculation as Speculation
from shared.sampling import ThinkingLimit as ThinkingLimit
from shared.sampling import TokenLogprobs as TokenLogprobs
from shared.wire import Wire

Tokens = np.ndarray  # int32 [n]; arrives read-only
SpanIds = np.ndarray  # uint64 [2 n], the 16 bytes of each span's name

SourceKind = Literal["prompt", "tool", "derived", "predicted", "output", "session"]
DraftKind = SourceKind | Literal["lookup", "neural"]
# Why a round drafted nothing: nothing matched, the best match would not have paid, its source was
# about to end, the request's grammar forbids its first token.
Declined = Literal["no_match", "not_worth", "source_ends", "forbidden", "turned_off"]
FinishReason = Literal["stop", "length", "context", "cancelled"]
FailureCode = Literal[
    "server_error", "context_length_exceeded", "rate_limit_exceeded", "deadline_passed"
]
ServiceName = Literal["gateway", "engine", "indexer", "archive"]


UnboundReason = Literal[
    "busy",  # another request is bound to the session now
    "unknown_parent",
    "stale_generation",
    "session_exists",  # a fork needs a new name
    "parent_is_session",
    "reset_with_parent",
    "sessions_busy",  # there are 32, and all are bound
    "no_room",
    "not_attached",  # the archive has just started
]


class SpanKind(enum.IntEnum):
    """What a retained text was, in rising priority: none is evicted for a lower one."""

    REASONING = 0
    TEXT = 1  # system, developer, user
    GENERATED = 2
    TOOL = 3


# -- shared values ---------------------------------------------------------------------------


class ModelFacts(Wire, frozen=True, kw_only=True):
    """What only the engine knows, learned when the model has loaded."""

    model_id: str
    family: str
    vocab_size: int
    max_context: int  # tokens of prompt and output together
    parameters: int
    weight_bytes: int
    dtype: str
    device: str
    threads: int
    exact: bool = False  # passes of every width give the same bits
    weights: str = "full"  # the layers' matrices: full (in dtype), int8 or int4


class EngineLimits(Wire, frozen=True, kw_only=True):
    """The resolved settings that other processes and the log report."""

    max_concurrency: int
    max_waiting: int
    spec: str  # off, or the neural drafter's name
    draft_tokens: int  # the neural window: a drafter's or a lookup's, 0 without both
    ngram_draft_tokens: int  # 0 is off
    ngram_policy: Literal["fixed", "adaptive"]
    ngram_min_match: int  # shortest match that licenses a copy
    lookup_ngram: int  # 0 is off
    host_cache_mib: int = 0  # memory for prefixes whose slot was overwritten, 0 is off
    ngram_archive_mib: int = 0  # 0 is off


class SourceStats(Wire, frozen=True, kw_only=True):
    """Drafts that came from one kind of source, a subset of the request's totals."""

    kind: DraftKind
    rounds: int
    drafted_tokens: int
    accepted_tokens: int


class DraftSpan(Wire, frozen=True, kw_only=True):
    """What one round drafted for output tokens [start, stop), which it committed.

    The last of them is the model's own: the correction behind `accepted` drafts, or the bonus.
    Rounds in a row that drafted nothing for the same reason are one span.
    """

    start: int
    stop: int
    kind: DraftKind | None  # where the copy came from; None if nothing was drafted
    position: int | None  # of the first copied token, in its index; None without a copy
    match_length: int  # tokens of the text so far that stand before it there, at most 64
    neural: int  # how many leading drafts are the neural drafter's, or a lookup's
    drafted: int
    accepted: int
    declined: Declined | None  # why nothing was drafted


class DraftRecord(Wire, frozen=True, kw_only=True):
    spans: tuple[DraftSpan, ...]
    dropped: int  # rounds behind the last span that found no room


class SpeculativeStats(Wire, frozen=True, kw_only=True):
    """Drafting over one request; `ngram_*` are subsets of the totals."""

    backend: str  # off, ngram, or the neural drafter's name
    draft_window: int  # the wider of the neural and the copy window
    rounds: int  # verify passes that had at least one draft in this request's row
    drafted_tokens: int
    accepted_tokens: int
    fallback_steps: int  # decode passes without a draft
    accepted_per_position: tuple[int, ...]  # [draft_window]
    ngram_rounds: int
    ngram_drafted_tokens: int
    ngram_accepted_tokens: int
    ngram_handoffs: int  # rounds in which a match was dropped because its source was ending
    ngram_resumes: int  # rounds in which a copy went on where the last one ended
    ngram_index_wait_rounds: int  # decode rounds that ran before the prompt index arrived
    sources: tuple[SourceStats, ...]


class EngineTimings(Wire, frozen=True, kw_only=True):
    """Seconds by the engine's monotonic clock."""

    queue_s: float  # receipt to the first prefill pass
    prefill_s: float  # first prefill pass to the first output token
    decode_s: float  # first output token to the last
    forward_s: float  # inside the model, summed over this request's decode passes
    host_s: float  # decode passes outside the model's forward: drafting, verifying, sending
    neural_s: float  # of host_s, inside the neural drafter


# Why no more of a prompt's KV was reused: all of it was but the last token; the prompt goes on
# behind what was known; what was known goes on differently; it is known under another cache salt
# only; nothing was known.
ReuseEnd = Literal["complete", "appended", "changed", "other_salt", "unknown"]


class GenerationStats(Wire, frozen=True, kw_only=True):
    prompt_tokens: int
    output_tokens: int
    computed_prefill_tokens: int
    cached_tokens: int  # prompt tokens whose KV was reused
    cached_from: str = "none"  # where it was: slot, running or host
    cached_until: ReuseEnd = "unknown"
    decode_passes: int
    timings: EngineTimings
    speculative: SpeculativeStats


class SessionFork(Wire, frozen=True, kw_only=True):
    parent: bytes  # the other session's key
    generation: int  # > 0, the parent's latest


class DraftSession(Wire, frozen=True, kw_only=True):
    """The session that a request names, and what of its prompt is worth retaining there."""

    key: bytes  # namespaced, as the client spelled it
    fork: SessionFork | None  # makes the session out of another
    reset: bool  # begins it anew
    parts: Tokens  # [3 n]: start, stop and SpanKind of each part of the prompt
    thinking: tuple[int, int] | None  # the ids around reasoning, if the model has such


class ArchiveStats(Wire, frozen=True, kw_only=True):
    """What became of a request's session."""

    bound: bool
    reason: str | None  # why it was not bound or not published
    published: bool
    generation: int  # of this publication, 0 without one
    sources: int  # spans in the session
    session_bytes: int
    total_bytes: int


# -- gateway -> engine -----------------------------------------------------------------------


class Hello(Wire, frozen=True, kw_only=True):
    """Asks for `EngineReady`; sent after each (re)connection."""


class Generate(Wire, frozen=True, kw_only=True):
    request_id: str
    prompt_ids: Tokens  # [prompt_len]
    max_output_tokens: int  # >= 1; the engine also stops at the context's end
    stop_ids: tuple[int, ...]  # end the output, are counted as output, carry no text
    sampling: Sampling
    expect_index: bool  # an IndexReady will follow from the indexer
    queue_deadline_s: float  # how long it may wait for a row, from receipt
    min_output_tokens: int = 0  # stop tokens cannot be drawn before
    top_logprobs: int | None = None  # logprobs of every token and so many alternatives; None: none
    thinking: ThinkingLimit | None = None
    grammar: Grammar | None = None
    speculation: Speculation = Speculation()
    record_drafts: bool = False  # `Finished` shall say what each round drafted, and why
    cache_salt: str = ""  # prefixes are reused only between requests of one salt
    session: DraftSession | None = None  # None: it names none


class Cancel(Wire, frozen=True, kw_only=True):
    """The client is gone. May arrive before, during or after; always harmless."""

    request_id: str


class Stop(Wire, frozen=True, kw_only=True):
    """A stop string ended the text inside output token `output_tokens` - 1: a normal end."""

    request_id: str
    output_tokens: int  # how many output tokens count


GatewayToEngine = Hello | Generate | Cancel | Stop


# -- engine -> gateway -----------------------------------------------------------------------


class EngineReady(Wire, frozen=True, kw_only=True):
    instance_id: str  # new at each engine start
    model: ModelFacts
    limits: EngineLimits


class EngineStatus(Wire, frozen=True, kw_only=True):
    """The engine's pulse, about once a second, also while a long pass runs."""

    running: int
    waiting: int
    kv_used_tokens: int
    kv_total_tokens: int


class OutputTokens(Wire, frozen=True, kw_only=True):
    """The tokens that one round committed."""

    request_id: str
    token_ids: Tokens  # [committed]
    copied: int  # how many of them were accepted copies
    logprobs: TokenLogprobs | None = None


class Finished(Wire, frozen=True, kw_only=True):
    """Terminal. Every committed token was sent before it."""

    request_id: str
    reason: FinishReason
    stats: GenerationStats
    drafts: DraftRecord | None = None  # if `Generate.record_drafts`
    archive: ArchiveStats | None = None  # None: it named no session


class Failed(Wire, frozen=True, kw_only=True):
    """Terminal."""

    request_id: str
    code: FailureCode
    message: str


EngineToGateway = EngineReady | EngineStatus | OutputTokens | Finished | Failed


# -- gateway -> indexer ----------------------------------------------------------------------


class BuildIndex(Wire, frozen=True, kw_only=True):
    request_id: str
    prompt_ids: Tokens  # [prompt_len]
    tool_texts: tuple[str, ...]  # every text part of every tool message, in order
    predicted: str | None  # the caller's predicted output
    # where files stand outside of tool results: what users pasted, and the JSON arguments of calls
    user_texts: tuple[str, ...] = ()
    call_arguments: tuple[str, ...] = ()


class DropIndex(Wire, frozen=True, kw_only=True):
    """The request has ended; work on its index may stop."""

    request_id: str


GatewayToIndexer = BuildIndex | DropIndex


# -- indexer -> engine -----------------------------------------------------------------------


class SourceSpan(Wire, frozen=True, kw_only=True):
    """Tokens [start, stop) of a source that are of another kind than the rest of it."""

    kind: SourceKind
    start: int
    stop: int


class IndexedSource(Wire, frozen=True, kw_only=True):
    """One immutable source with its index, as `shared/matching/segment.py` builds it."""

    kind: SourceKind
    tokens: Tokens  # int32 [n]; boundaries are -1
    order: np.ndarray  # int32 [n], positions sorted by reversed context
    spans: tuple[SourceSpan, ...] = ()  # ascending, apart
    is_view: bool = False  # another spelling of texts that are there already


class IndexReady(Wire, frozen=True, kw_only=True):
    request_id: str
    sources: tuple[IndexedSource, ...]
    build_s: float


IndexerToEngine = IndexReady


# -- engine -> archive -----------------------------------------------------------------------


class Attach(Wire, frozen=True, kw_only=True):
    """The engine's pulse. A new `engine_id` clears the archive; lost bindings are released."""

    engine_id: str
    generation_floor: int  # the highest generation that this engine may have seen
    bindings: tuple[str, ...]  # request ids of all that it believes to hold


class Bind(Wire, frozen=True, kw_only=True):
    """Answered by Bound or Unbound; nobody waits for it."""

    engine_id: str
    binding: str  # the request's id
    key: bytes
    fork: SessionFork | None
    reset: bool
    known: SpanIds  # spans that need not be sent


class Publish(Wire, frozen=True, kw_only=True):
    """Ends a binding at a normal end. Answered by Published or NotPublished."""

    binding: str
    tokens: Tokens  # [n]; boundaries are -1
    parts: Tokens  # [3 m]: start, stop and SpanKind


class Release(Wire, frozen=True, kw_only=True):
    """Ends a binding that has nothing to publish."""

    binding: str


EngineToArchive = Attach | Bind | Publish | Release


# -- archive -> engine -----------------------------------------------------------------------


class Attached(Wire, frozen=True, kw_only=True):
    """The answer to each Attach."""

    archive_id: str  # new at each start of the archive
    total_bytes: int


class Bound(Wire, frozen=True, kw_only=True):
    binding: str
    generation: int  # the session's latest, 0 if it has none
    span_ids: SpanIds  # the session's spans; the one seen last stands last
    missing: SpanIds  # those of them that `spans` brings
    spans: tuple[Tokens, ...]
    session_bytes: int
    total_bytes: int


class Unbound(Wire, frozen=True, kw_only=True):
    binding: str
    reason: UnboundReason
    total_bytes: int


class Revoked(Wire, frozen=True, kw_only=True):
    """The session was reset or deleted: its spans must not be used any more."""

    binding: str


class Forget(Wire, frozen=True, kw_only=True):
    """Somebody deleted sessions: nothing of any session may be kept for later."""


class Published(Wire, frozen=True, kw_only=True):
    binding: str
    generation: int
    sources: int
    session_bytes: int
    total_bytes: int


class NotPublished(Wire, frozen=True, kw_only=True):
    """The binding was revoked, or is of an earlier archive."""

    binding: str
    total_bytes: int


ArchiveToEngine = Attached | Bound | Unbound | Revoked | Forget | Published | NotPublished


# -- gateway <-> archive ---------------------------------------------------------------------


class ListSessions(Wire, frozen=True, kw_only=True):
    ticket: int  # comes back with the answer


class DeleteSessions(Wire, frozen=True, kw_only=True):
    ticket: int
    session_id: str | None  # a public id; None for all


GatewayToArchive = ListSessions | DeleteSessions


class SessionFacts(Wire, frozen=True, kw_only=True):
    session_id: str  # see shared/session_names.py
    generation: int
    sources: int
    session_bytes: int
    bound: bool
    last_used_unix_s: float


class Sessions(Wire, frozen=True, kw_only=True):
    ticket: int
    sessions: tuple[SessionFacts, ...]  # the one used last stands last
    total_bytes: int
    capacity_bytes: int
    evicted_spans: int  # since the archive's start


class Deleted(Wire, frozen=True, kw_only=True):
    ticket: int
    sessions: int  # how many there were


ArchiveToGateway = Sessions | Deleted


# -- lifecycle -------------------------------------------------------------------------------


class Ready(Wire, frozen=True, kw_only=True):
    """A service serves; sent to the supervisor once."""

    service: ServiceName
    pid: int
    facts: dict[str, str]  # for people: shown in the start-up lines and the log


ServiceToSupervisor = Ready
