"""What a drafter proposes."""

from dataclasses import dataclass

from shared.messages import SourceKind


@dataclass(frozen=True)
class Draft:
    token_ids: tuple[int, ...]  # at least one
    kind: SourceKind  # where the copy came from
