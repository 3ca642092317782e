"""The request log's lines as types: what `ninfer-log` reads, and prints as a JSON Schema.

They are apart from the messages between processes, since a file outlives a version: readers ignore
fields that they do not know, and a line of an older server may lack one that has a default here.
A test holds every line that the server writes against them.
"""

from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

ARTIFACT_TYPE = "ninfer_serve_request_log"
SCHEMA_VERSION = 1


def said(description: str) -> Meta:
    return Meta(description=description)


class Line(msgspec.Struct, kw_only=True, tag_field="event"):
    """What every line has."""

    artifact_type: Annotated[Literal["ninfer_serve_request_log"], said("the kind of the file")]
    schema_version: Annotated[int, said("1; rises only when a field changes its meaning")]
    timestamp_unix_ms: Annotated[int, said("wall clock, milliseconds")]
    server_instance_id: Annotated[str, said("new at each start of the gateway")]


class SamplingDefaults(msgspec.Struct, kw_only=True):
    temperature: float
    top_p: float
    top_k: int
    min_p: float


class Server(msgspec.Struct, kw_only=True):
    model_id: Annotated[str, said("the name that clients use")]
    host: str
    port: int
    has_api_key: bool
    max_body_mib: int
    default_max_tokens: int
    tool_parser: Annotated[str, said("the form of the model's tool calls")]
    sampling_defaults: SamplingDefaults
    argv: Annotated[list[str], said("the gateway's command line, the key replaced by ***")]


class Model(msgspec.Struct, kw_only=True):
    model_id: str
    family: str
    vocab_size: int
    max_context: Annotated[int, said("tokens of prompt and output together")]
    parameters: int
    weight_bytes: int
    dtype: str
    device: str
    threads: int
    exact: Annotated[bool, said("passes of every width give a token the same bits")] = False
    weights: Annotated[str, said("the layers' matrices: full (in dtype), int8 or int4")] = "full"


class Limits(msgspec.Struct, kw_only=True):
    max_concurrency: int
    max_waiting: int
    spec: Annotated[str, said("off, or the neural drafter's name")]
    draft_tokens: Annotated[int, said("the neural window, tokens")]
    ngram_draft_tokens: Annotated[int, said("the widest copy, tokens; 0 is off")]
    ngram_policy: str
    ngram_min_match: Annotated[int, said("the shortest match that licenses a copy, tokens")]
    lookup_ngram: Annotated[int, said("0 is off")]
    host_cache_mib: int = 0
    ngram_archive_mib: int = 0


class Engine(msgspec.Struct, kw_only=True):
    instance_id: Annotated[str, said("new at each start of the engine")]
    model: Model
    limits: Limits


class Sampling(msgspec.Struct, kw_only=True):
    temperature: float
    top_p: float
    top_k: int
    min_p: float
    seed: Annotated[int, said("the client's, or a random one; see ngram_archive.sampling_seed")]
    presence_penalty: float
    frequency_penalty: float
    repetition_penalty: float
    logit_bias: Annotated[list[tuple[int, float]], said("pairs of token id and bias")]


class Speculation(msgspec.Struct, kw_only=True):
    """What a request's `ninfer` object narrowed; all 0 turned drafting off."""

    ngram_draft_tokens: int | UnsetType = UNSET
    draft_tokens: int | UnsetType = UNSET
    ngram_min_match: int | UnsetType = UNSET


class Request(msgspec.Struct, kw_only=True):
    """Counts and switches. The later a call was refused, the more of them are there."""

    request_id: Annotated[str, said("also the reply's x-request-id and its id")]
    protocol: Annotated[str | None, said("null of a call that reached none")]
    client: Annotated[str | UnsetType, said("User-Agent, cut")] = UNSET
    traceparent: Annotated[str | UnsetType, said("the caller's W3C trace context")] = UNSET
    method: Annotated[str | UnsetType, said("only of a call that reached no protocol")] = UNSET
    path: Annotated[str | UnsetType, said("only of a call that reached no protocol")] = UNSET
    stream: bool | UnsetType = UNSET
    message_count: int | UnsetType = UNSET
    tool_count: int | UnsetType = UNSET
    tool_choice: str | UnsetType | None = UNSET
    has_tool_history: Annotated[bool | UnsetType, said("calls or results in the prompt")] = UNSET
    has_prediction: bool | UnsetType = UNSET
    stop_count: int | UnsetType = UNSET
    model: str | UnsetType = UNSET
    n: Annotated[int | UnsetType, said("how many choices were asked for")] = UNSET
    prompt_tokens: int | UnsetType = UNSET
    output_limit: Annotated[int | UnsetType, said("tokens, cut by the context")] = UNSET
    requested_output_tokens: int | UnsetType = UNSET
    requested_output_tokens_source: Literal["client", "server_default"] | UnsetType = UNSET
    sampling: Sampling | UnsetType = UNSET
    speculation: Annotated[
        Speculation | UnsetType | None, said("what the request narrowed; null if nothing")
    ] = UNSET
    draft_session: Annotated[
        str | UnsetType | None, said("the hash of the draft session's name")
    ] = UNSET


class Choice(msgspec.Struct, kw_only=True):
    """One of several answers to a request."""

    index: int
    finish_reason: str
    completion_tokens: int
    decode_passes: int
    reasoning_tokens: int
    tool_calls: int
    drafted_tokens: int
    accepted_tokens: int


class Result(msgspec.Struct, kw_only=True):
    """Of several choices together; the prompt counts once."""

    finish_reason: Annotated[
        str,
        said(
            "stop, stop_string, length, context or cancelled; of several choices the first one's,"
            " or cancelled if any was"
        ),
    ]
    prompt_tokens: int
    completion_tokens: Annotated[int, said("up to a stop string, if one ended it")]
    computed_prefill_tokens: Annotated[int, said("prompt tokens that the model computed")]
    prefix_cache_hit_tokens: Annotated[int, said("prompt tokens whose KV was reused")]
    prefix_cache_source: Annotated[str, said("where it was: none, slot, running or host")] = "none"
    prefix_cache_end: Annotated[
        str,
        said(
            "why no more was reused: complete (all of it), appended (the prompt goes on behind what"
            " was known), changed (what was known goes on differently from that token on),"
            " other_salt (known under another key's salt only), unknown (nothing like it was held)"
        ),
    ] = "unknown"
    decode_passes: Annotated[int, said("passes of the model behind the prompt's")]
    reasoning_tokens: int
    tool_calls: int
    choices: Annotated[list[Choice] | UnsetType, said("where n was over 1, by index")] = UNSET


class Timings(msgspec.Struct, kw_only=True):
    """Seconds by monotonic clocks, unrounded. Of several choices: queue and prefill of the first,
    which computes the prompt; decode until the last has ended; forward and host of that one."""

    prepare: Annotated[float, said("parse, template, tokenise")]
    queue: Annotated[float, said("from the engine's receipt to the first prefill pass")]
    prefill: Annotated[float, said("first prefill pass to the first output token")]
    ttft: Annotated[float | None, said("receipt to the first text; null without text")]
    decode: Annotated[float, said("first output token to the last")]
    forward: Annotated[float, said("inside of the model, decode passes only")]
    host: Annotated[float, said("decode passes outside of the model")]
    neural: Annotated[float, said("of host, inside of the neural drafter")] = 0.0
    total: Annotated[float, said("receipt to the end")]


class Source(msgspec.Struct, kw_only=True):
    kind: Annotated[
        str, said("prompt, tool, derived, predicted, output, session, lookup or neural")
    ]
    rounds: int
    drafted_tokens: int
    accepted_tokens: int


class Speculative(msgspec.Struct, kw_only=True):
    """Drafting; `ngram_*` are what copies have of the totals."""

    backend: Annotated[str, said("off, ngram, or the neural drafter's name")]
    draft_window: Annotated[int, said("the wider of the neural and the copy window, tokens")]
    rounds: Annotated[int, said("passes with at least one draft")]
    drafted_tokens: int
    accepted_tokens: int
    fallback_steps: Annotated[int, said("decode passes without a draft")]
    accepted_per_position: Annotated[
        list[int], said("rounds in which the draft at this position was accepted")
    ]
    ngram_rounds: int
    ngram_drafted_tokens: int
    ngram_accepted_tokens: int
    ngram_handoffs: Annotated[int, said("matches dropped because their source was ending")]
    ngram_resumes: Annotated[int, said("copies that went on where the last one ended")]
    ngram_index_wait_rounds: Annotated[int, said("rounds before the prompt's index arrived")]
    num_drafts: Annotated[int, said("rounds, in vLLM's name")]
    num_draft_tokens: Annotated[int, said("drafted_tokens, in vLLM's name")]
    num_accepted_tokens: Annotated[int, said("accepted_tokens, in vLLM's name")]
    mean_acceptance_length: Annotated[
        float | None, said("tokens of a pass with drafts, the model's own included")
    ]
    draft_acceptance_rate: float | None
    per_position_acceptance_rate: list[float]
    sources: Annotated[list[Source], said("drafts by where they came from")]


class Archive(msgspec.Struct, kw_only=True):
    """What became of the draft session that was named."""

    enabled: Annotated[bool, said("the server retains sessions")]
    bound: bool
    reason: Annotated[
        str | None,
        said("why it was not bound or not published; null if all is well or none was named"),
    ]
    published: bool
    generation: Annotated[int, said("of this publication, 0 without one")]
    sources: Annotated[int | None, said("spans in the session")]
    session_bytes: int | None
    total_bytes: int | None
    sampling_seed: Annotated[int | None, said("what the draws depended on, if one was named")]


class Error(msgspec.Struct, kw_only=True):
    status: Annotated[int, said("of HTTP")]
    type: Annotated[str, said("the error's class")]
    code: str | None
    param: Annotated[str | None, said("the field that is to blame")]
    reason: Annotated[str, said("a sentence without what the client wrote")] = ""


class ServerStart(Line, tag="server_start", kw_only=True):
    """An engine is ready, also again after its restart; and the first line of a new file."""

    server: Server
    engine: Engine


class RequestStart(Line, tag="request_start", kw_only=True):
    """Accepted and sent to the engine."""

    request: Request


class RequestDone(Line, tag="request_done", kw_only=True):
    """Ended normally, or cancelled."""

    request: Request
    result: Result
    timings_seconds: Timings
    speculative: Speculative
    ngram_archive: Archive


class RequestError(Line, tag="request_error", kw_only=True):
    """Refused or failed."""

    request: Request
    phase: Annotated[
        Literal["guard", "http", "prepare", "generate", "cancel"],
        said(
            "guard: host, origin, key, path or method; http: what is no HTTP; prepare: the request"
            " itself; generate, cancel: a started request failed"
        ),
    ]
    error: Error


AnyLine = ServerStart | RequestStart | RequestDone | RequestError


def schema() -> dict[str, Any]:
    """JSON Schema (2020-12) of one line."""
    title = {"title": "One line of ninfer's request log", "$id": f"{ARTIFACT_TYPE}.schema.json"}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **title,
        **msgspec.json.schema(AnyLine),
    }
