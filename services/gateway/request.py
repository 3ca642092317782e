"""A request as every protocol means it."""

from dataclasses import dataclass, field
from typing import Any

import msgspec

from services.gateway.conversation import Conversation, RawPrompt
from services.gateway.wishes import Wishes


@dataclass(frozen=True, kw_only=True)
class Request:
    body: msgspec.Struct  # as its protocol parsed it; only that protocol's reply reads it
    prompt: Conversation | RawPrompt
    prompt_param: str = "messages"  # the body's field that holds it
    described: dict[str, Any]  # for the log: counts and switches, no text
    model: str | None = None
    any_model: bool = False  # the name is only a label
    stream: bool = False
    max_tokens: int | None = None
    sampling: dict[str, float | int] = field(default_factory=dict)  # what the client chose
    seed: int | None = None
    choices: int = 1
    stops: tuple[str, ...] = ()
    predicted: str | None = None
    wishes: Wishes = Wishes()
    template_options: dict[str, Any] = field(default_factory=dict)
    # Where sessions may be named (with the request's headers); unchecked, as the client sent them.
    client_metadata: Any = None
    metadata: Any = None
