"""All messages between processes, and nothing else.

Order: shared values, gateway -> engine, engine -> gateway, gateway <-> indexer,
indexer -> engine, lifecycle. Arrays (`Tokens` and the index arrays) travel as frames behind the
encoded header (see `shared/wire.py`); everything else is in the header.
"""

import enum
from typing import Literal

import numpy as np

from shared.sampling import Sampling as Sampling
from shared.sampling import Speculation as Speculation
from shared.sampling import ThinkingLimit as ThinkingLimit
from shared.sampling import TokenLogprobs as TokenLogprobs
from shared.wire import Wire

Tokens = np.ndarray  # int32 [n]; arrives read-only

SourceKind = Literal["prompt", "tool", "derived", "predicted", "output", "session"]
DraftKind = SourceKind | Literal["lookup", "neural"]
FinishReason = Literal["stop", "length", "context", "cancelled"]
FailureCode = Literal[
    "server_error", "context_length_exceeded", "rate_limit_exceeded", "deadline_passed"
]
ServiceName = Literal["gateway", "engine", "indexer"]


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


class EngineLimits(Wire, frozen=True, kw_only=True):
    """The resolved settings that other processes and the log report."""

    max_concurrency: int
    max_waiting: int
    spec: str  # off, or the neural drafter's name
    draft_tokens: int  # the neural window, 0 without a drafter
    ngram_draft_tokens: int  # 0 is off
    ngram_min_match: int
    host_cache_mib: int = 0  # memory for prefixes whose slot was overwritten, 0 is off


class SourceStats(Wire, frozen=True, kw_only=True):
    """Drafts that came from one kind of source, a subset of the request's totals."""

    kind: DraftKind
    rounds: int
    drafted_tokens: int
    accepted_tokens: int


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
    ngram_index_wait_rounds: int  # decode rounds that ran before the prompt index arrived
    sources: tuple[SourceStats, ...]


class EngineTimings(Wire, frozen=True, kw_only=True):
    """Seconds by the engine's monotonic clock."""

    queue_s: float  # receipt to the first prefill pass
    prefill_s: float  # first prefill pass to the first output token
    decode_s: float  # first output token to the last
    forward_s: float  # inside the model, summed over this request's decode passes
    host_s: float  # decode passes outside the model's forward: drafting, verifying, sending


class GenerationStats(Wire, frozen=True, kw_only=True):
    prompt_tokens: int
    output_tokens: int
    computed_prefill_tokens: int
    cached_tokens: int  # prompt tokens whose KV was reused
    cached_from: str = "none"  # where it was: slot, running or host
    decode_passes: int
    timings: EngineTimings
    speculative: SpeculativeStats


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
    speculation: Speculation = Speculation()
    cache_salt: str = ""  # prefixes are reused only between requests of one salt


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


class DropIndex(Wire, frozen=True, kw_only=True):
    """The request has ended; work on its index may stop."""

    request_id: str


GatewayToIndexer = BuildIndex | DropIndex


# -- indexer -> engine -----------------------------------------------------------------------


class IndexedSource(Wire, frozen=True, kw_only=True):
    """One immutable source with its index, as `shared/matching/segment.py` builds it."""

    kind: SourceKind
    tokens: Tokens  # int32 [n]; boundaries are -1
    order: np.ndarray  # int32 [n], positions sorted by reversed context


class IndexReady(Wire, frozen=True, kw_only=True):
    request_id: str
    sources: tuple[IndexedSource, ...]
    build_s: float


IndexerToEngine = IndexReady


# -- lifecycle -------------------------------------------------------------------------------


class Ready(Wire, frozen=True, kw_only=True):
    """A service serves; sent to the supervisor once."""

    service: ServiceName
    pid: int
    facts: dict[str, str]  # for people: shown in the start-up lines and the log


ServiceToSupervisor = Ready
