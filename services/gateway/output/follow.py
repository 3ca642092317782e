"""Does a text go on with these words? Whitespace between them is bounded, so the answer costs a
bounded look however hostile the text is."""

from typing import NamedTuple

MAX_SPACE = 8
WHITESPACE = " \t\r\n"

Part = str | tuple[str, ...] | None  # words, alternatives, or up to MAX_SPACE whitespace


class Seen(NamedTuple):
    end: int | None  # where the words end; None if they do not stand there
    undecided: bool  # the text ends before that is certain


NO = Seen(None, False)
NOT_YET = Seen(None, True)


def follow(text: str, at: int, *parts: Part) -> Seen:
    for part in parts:
        if part is None:
            limit = min(len(text), at + MAX_SPACE)
            while at < limit and text[at] in WHITESPACE:
                at += 1
            continue
        words = (part,) if isinstance(part, str) else part
        match = next((word for word in words if text.startswith(word, at)), None)
        if match is None:
            rest = text[at : at + max(map(len, words))]
            ends = at + len(rest) == len(text)
            return Seen(None, ends and any(word.startswith(rest) for word in words))
        at += len(match)
    return Seen(at, False)
