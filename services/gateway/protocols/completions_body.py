"""The body of a legacy completion."""

from typing import Any

from services.gateway.protocols.chat_body import ResponseFormat, StreamOptions, StructuredOutputs
from services.gateway.protocols.decoding import ChoiceCount, Count
from services.gateway.protocols.decoding_fields import DecodingFields


class CompletionsBody(DecodingFields, kw_only=True):
    """Other fields are refused (`unserved.py`) or change nothing."""

    prompt: str | list[Any]
    model: str | None = None
    max_tokens: Count | None = None
    n: ChoiceCount | None = None
    stop: str | list[str] | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    timings_per_token: bool | None = None  # llama.cpp's: timings in every chunk
    response_format: ResponseFormat | None = None
    structured_outputs: StructuredOutputs | None = None
    guided_json: dict[str, Any] | None = None
    guided_regex: str | None = None
    guided_choice: list[str] | None = None
    guided_grammar: str | None = None
    metadata: Any = None
