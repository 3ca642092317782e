"""How drafts are chosen; the same for every request of an engine."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal

Policy = Literal["fixed", "adaptive"]


@dataclass(frozen=True)
class DraftSettings:
    policy: Policy
    width: int  # most tokens of a copy; 0 copies nothing
    min_match: int  # shortest match that licenses a copy
    boundary_ids: Collection[int] = ()  # no match and no copy crosses one of them
    neural_width: int = 0  # the neural window: most tokens of a neural drafter or a lookup
    lookup_ngram: int = 0  # how many tokens `--lookup-ngram` looks up, 0 is off
