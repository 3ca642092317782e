"""How a request's drafts are chosen; fixed for the engine's life."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal

Policy = Literal["fixed", "adaptive"]


@dataclass(frozen=True)
class DraftSettings:
    policy: Policy
    min_match: int  # shortest match that licenses a copy
    neural_width: int = 0  # the neural drafter's window, 0 without one
    boundary_ids: Collection[int] = ()  # no match and no copy crosses one of them
