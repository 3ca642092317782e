"""How far an output is and how it ended, for the protocols."""

from dataclasses import dataclass
from typing import Literal

from shared.messages import ArchiveStats, GenerationStats

EndReason = Literal["stop", "stop_string", "tool_calls", "length", "context"]


@dataclass(frozen=True)
class Result:
    """How an output ended, for the protocols."""

    reason: EndReason
    stop: str | None  # the stop string, if one ended it
    stats: GenerationStats
    output_tokens: int
    reasoning_tokens: int
    archive: ArchiveStats | None = None  # None: the request named no session


@dataclass(frozen=True)
class Progress:
    """How far an output is, as the gateway sees it."""

    prompt_tokens: int
    output_tokens: int
    copied_tokens: int  # of the output
    first_s: float  # from the request's receipt to the first tokens
    since_first_s: float
