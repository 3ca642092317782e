"""The fixed parts of a conversation in a model's own chat template."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from shared.errors import CheckpointError
from shared.template import ChatTemplate

PROBES = ("bij", "kow")


@dataclass(frozen=True)
class Dialogue:
    """Token ids; the first of `to_answer` and of `to_user` ends the turn before it."""

    opening: tuple[int, ...]  # up to where the first question begins
    to_answer: tuple[int, ...]
    to_user: tuple[int, ...]

    @classmethod
    def of(cls, template: ChatTemplate) -> "Dialogue":
        """Found by rendering two conversations and taking away what differs.

        Raises:
            CheckpointError: the template does not put its turns one behind the other.
        """
        one, other = (_encode(template, [probe]) for probe in PROBES)
        opening = _common(one, other)
        to_answer = _common(one[::-1], other[::-1])[::-1]
        said = one[len(opening) : len(one) - len(to_answer)]
        turns = _encode(template, [PROBES[0]] * 3)
        start = len(opening) + 2 * len(said) + len(to_answer)
        to_user = turns[start : len(turns) - len(said) - len(to_answer)]
        whole = [*opening, *said, *to_answer, *said, *to_user, *said, *to_answer]
        if not (to_answer and to_user and turns == whole):
            raise CheckpointError("the chat template does not put its turns one behind the other")
        return cls(tuple(opening), tuple(to_answer), tuple(to_user))


def _encode(template: ChatTemplate, said: list[str]) -> list[int]:
    roles = ("user", "assistant")
    messages: list[dict[str, Any]] = [
        {"role": roles[i % 2], "content": text} for i, text in enumerate(said)
    ]
    ids: list[int] = np.asarray(template.encode(messages)).tolist()
    return ids


def _common(one: list[int], other: list[int]) -> list[int]:
    size = 0
    while size < min(len(one), len(other)) and one[size] == other[size]:
        size += 1
    return one[:size]
