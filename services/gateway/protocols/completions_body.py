"""The body of a legacy completion."""

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from services.gateway.protocols.chat_body import (
    Bias,
    ResponseFormat,
    StreamOptions,
    StructuredOutputs,
)
from services.gateway.protocols.decoding import Count, Penalty, Share, Temperature, TopK, TopP
from services.gateway.protocols.ninfer_options import NinferOptions


class CompletionsBody(msgspec.Struct):
    """Fields that are not here are known to be harmless, or unknown, and are ignored."""

    prompt: str | list[Any]
    model: str | None = None
    max_tokens: Count | None = None
    temperature: Temperature | None = None
    top_p: TopP | None = None
    top_k: TopK | None = None
    min_p: Share | None = None
    presence_penalty: Penalty | None = None
    frequency_penalty: Penalty | None = None
    repetition_penalty: Annotated[float, Meta(gt=0, le=10)] | None = None
    logit_bias: Annotated[dict[str, Bias], Meta(max_length=1024)] | None = None
    min_tokens: Annotated[int, Meta(ge=0)] | None = None
    response_format: ResponseFormat | None = None
    structured_outputs: StructuredOutputs | None = None
    guided_json: dict[str, Any] | None = None
    guided_regex: str | None = None
    guided_choice: list[str] | None = None
    guided_grammar: str | None = None
    seed: int | None = None
    stop: str | list[str] | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    ninfer: NinferOptions | None = None
    echo: bool | None = None
    suffix: str | None = None
    best_of: int | None = None
    n: int | None = None
    logprobs: int | None = None
    metadata: Any = None
