"""How tokens are drawn and when they end: fields that every protocol takes, its own or not."""

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from services.gateway.effort import Effort
from services.gateway.forced_calls import ForcedCalls
from services.gateway.protocols.decoding import given
from services.gateway.protocols.ninfer_options import NinferOptions, speculation_of
from services.gateway.wishes import Wishes
from shared.errors import BadParameter

SAMPLING = (
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "presence_penalty",
    "frequency_penalty",
    "repetition_penalty",
)

Temperature = Annotated[float, Meta(ge=0, le=100)]
Share = Annotated[float, Meta(ge=0, le=1)]
TopP = Annotated[float, Meta(gt=0, le=1)]
TopK = Annotated[int, Meta(ge=0, le=1_000_000)]
Penalty = Annotated[float, Meta(ge=-2, le=2)]
Bias = Annotated[float, Meta(ge=-100, le=100)]
TokenId = Annotated[int, Meta(ge=0, lt=1 << 31)]


class DecodingFields(msgspec.Struct, kw_only=True):
    temperature: Temperature | None = None
    top_p: TopP | None = None
    top_k: TopK | None = None
    min_p: Share | None = None
    presence_penalty: Penalty | None = None
    frequency_penalty: Penalty | None = None
    repetition_penalty: Annotated[float, Meta(gt=0, le=10)] | None = None
    seed: int | None = None
    logit_bias: Annotated[dict[str, Bias], Meta(max_length=1024)] | None = None
    # vLLM's names
    min_tokens: Annotated[int, Meta(ge=0)] | None = None
    ignore_eos: bool | None = None
    stop_token_ids: Annotated[list[TokenId], Meta(max_length=64)] | None = None
    ninfer: NinferOptions | None = None


def sampling_of(body: DecodingFields) -> dict[str, Any]:
    """What the client chose; the rest are the server's defaults."""
    return given(body, SAMPLING)


def wishes_of(
    body: DecodingFields,
    *,
    thinking_budget: int | None = None,
    effort: Effort | None = None,
    grammar: str | None = None,
    forced_calls: ForcedCalls | None = None,
    top_logprobs: int | None = None,
) -> Wishes:
    """`thinking_budget` and `effort` are the protocol's own, which a model that does not think may
    ignore. Raises BadParameter."""
    options = body.ninfer
    own = options.thinking_budget if options else None
    ends_by_itself = not (body.min_tokens or body.ignore_eos)
    if (grammar is not None or forced_calls is not None) and not ends_by_itself:
        param = "min_tokens" if body.min_tokens else "ignore_eos"
        raise BadParameter(f"{param} cannot hold where a grammar ends the output", param=param)
    return Wishes(
        logit_bias=_bias_of(body.logit_bias),
        min_tokens=body.min_tokens or 0,
        ignore_eos=bool(body.ignore_eos),
        stop_token_ids=tuple(body.stop_token_ids or ()),
        top_logprobs=top_logprobs,
        speculation=speculation_of(options),
        cache_salt=(options.cache_salt or "") if options else "",
        grammar=grammar,
        forced_calls=forced_calls,
        thinking_budget=thinking_budget if own is None else own,
        needs_thinking=own is not None,
        effort=effort,
    )


def stops_of(stop: str | list[str] | None) -> tuple[str, ...]:
    return (stop,) if isinstance(stop, str) else tuple(stop or ())


def _bias_of(bias: dict[str, float] | None) -> tuple[tuple[int, float], ...]:
    """Raises BadParameter: a key that is no token id."""
    for key in bias or ():
        if not key.isascii() or not key.isdecimal() or len(key) > 9:
            raise BadParameter(f"'{key}' is no token id", param="logit_bias")
    return tuple((int(key), value) for key, value in (bias or {}).items())
