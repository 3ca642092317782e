"""How drafts are chosen; the same for every request of an engine."""

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Literal

from shared.sampling import Speculation

Policy = Literal["fixed", "adaptive"]


@dataclass(frozen=True)
class DraftSettings:
    policy: Policy
    width: int  # most tokens of a copy; 0 copies nothing
    min_match: int  # shortest match that licenses a copy
    boundary_ids: Collection[int] = ()  # no match and no copy crosses one of them
    neural_width: int = 0  # the neural window: most tokens of a neural drafter or a lookup
    adaptive_neural: bool = False  # a round may ask for fewer neural drafts than that
    lookup_ngram: int = 0  # how many tokens `--lookup-ngram` looks up, 0 is off

    @property
    def is_off(self) -> bool:
        return not self.width and not self.neural_width

    def narrowed(self, wanted: Speculation) -> "DraftSettings":
        """For one request, which may ask for less than the server allows, never for more."""
        return replace(
            self,
            width=_least(self.width, wanted.ngram_draft_tokens),
            neural_width=_least(self.neural_width, wanted.draft_tokens),
            min_match=max(self.min_match, wanted.ngram_min_match or 0),
        )


def _least(allowed: int, wanted: int | None) -> int:
    return allowed if wanted is None else min(allowed, wanted)
