"""Verification: how many drafts are kept.

Column 0 is the anchor, columns 1..P hold the drafts; the target's draw at column i judges draft
i + 1. With A accepted drafts a round commits A + 1 tokens: the drafts, then the *recovered* token
(the target's own draw where it differs) or, if all were accepted, the *bonus*.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Verdict:
    committed: tuple[int, ...]  # accepted drafts, then the recovered or bonus token
    accepted: int


def verify(drafts: Sequence[int], draws: Iterator[int]) -> Verdict:
    """Keeps drafts while each equals the target's draw at its position.

    `draws` yields the target's token at column 0, 1, ... and is read no further than needed.
    A draw depends on the seed and its position alone (see `sampler`), so the committed tokens are
    those of decoding one token at a time, whatever the drafts were.
    """
    committed: list[int] = []
    for draft in drafts:
        draw = next(draws)
        committed.append(draw)
        if draw != draft:
            return Verdict(tuple(committed), len(committed) - 1)
    committed.append(next(draws))
    return Verdict(tuple(committed), len(drafts))
