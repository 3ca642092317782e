"""When a copy gives way because its source is about to end."""

from typing import NamedTuple

# With every draft accepted the target adds one bonus token; one more of the source must be left.
LOOKAHEAD_TOKENS = 2


class Handoff(NamedTuple):
    drafts: int  # tokens to propose, 0 leaves the row its neural round
    handed_off: bool  # a match was dropped because its source is ending


def hand_off(found: int, maximum: int, neural_width: int) -> Handoff:
    """How much to copy of `found` tokens, looked up with a limit of `maximum` + 2.

    A source that goes on gives exactly `maximum`. One that ends gives what leaves a token beyond
    the bonus, and only if that is more than the neural drafter would propose.
    """
    if maximum < 1 or found < 1:
        return Handoff(0, False)
    if found >= maximum + LOOKAHEAD_TOKENS:
        return Handoff(maximum, False)
    drafts = found - LOOKAHEAD_TOKENS
    if drafts > neural_width:
        return Handoff(drafts, False)
    return Handoff(0, True)
