"""One line of a numbered listing: its number, and where its body starts in each form it fits.

A line may fit several forms (`3 | x` is ` | ` and ` |`); which one a listing has is decided by all
of its lines together, in `derived.py`.
"""

import re
from dataclasses import dataclass

# In order of preference: the first form that all lines of a run share is the run's.
SEPARATORS = (": ", "\t", "→", " | ", "| ", " |", "|")
MARKED = {"+": "+: ", "-": "-: "}  # lines of an edit's echo: old and new text stay apart
L_GREP = "L- "  # `L12: hit` between `L13- context`
PATH_GREP = "path:"  # `a.py:12:hit` between `a.py-13-context`
FORMS = (*SEPARATORS, *MARKED.values(), L_GREP, PATH_GREP)

# A separator's trailing blank that was trimmed: on any line, or only where the text itself ends.
TRIMMED = {" |": " | "}
TRIMMED_AT_END = {"": "\t", ":": ": ", "|": "| "}

UINT64_MAX = 2**64 - 1
# Possessive quantifiers: a line of a million spaces must not be tried a million times.
_NUMBER = re.compile(r" *+([>+-]?) *+(L?)([0-9]++)")
_KNOWN_PATH_REST = re.compile(r"([:-])([0-9]{1,20})\1")
_HIT = re.compile(r"(\S+?):([0-9]{1,20}):")
_NEAR = re.compile(r"(\S+?)-([0-9]{1,20})-")

_CUT = re.compile(
    r"(?:\.\.\. \(line truncated[^)]*\)| \[line truncated\]|\.\.\. ?\[truncated\])\r?$"
)
_CUT_MARK_CHARS = 80
BARE_CUT_CHARS = 500  # a shorter line that ends in `...` is code or prose, not a reader's cut


@dataclass(slots=True)
class NumberedLine:
    text: str  # without its LF
    number: int
    bodies: dict[str, int]  # form -> where the body starts
    path: str = ""  # of a PATH_GREP line

    def follows(self, previous: "NumberedLine", form: str) -> bool:
        if form not in self.bodies:
            return False
        if form == PATH_GREP:
            return self.number > previous.number and _same_file(self.path, previous.path)
        return self.number == previous.number + 1


def parse_line(text: str, *, at_end: bool, path: str) -> NumberedLine | None:
    """None if `text` is no line of a listing.

    `at_end`: the whole text ends with this line. `path`: of the grep line before it, if any.
    """
    match = _NUMBER.match(text)
    if match is not None:
        number = _uint64(match[3])
        bodies = _bodies(text, match, at_end)
        if bodies and number is not None:
            return NumberedLine(text, number, bodies)
    return _grep_line(text, path)


def body_end(body: str) -> int | None:
    """Where a body that its reader cut short stops being the file's; None if it is whole."""
    tail = max(0, len(body) - _CUT_MARK_CHARS)
    match = _CUT.search(body, tail)
    if match is not None:
        return match.start()
    bare = body.removesuffix("\r")
    if len(bare) > BARE_CUT_CHARS and bare.endswith("..."):
        return len(bare) - 3
    return None


def _bodies(text: str, match: re.Match[str], at_end: bool) -> dict[str, int]:
    marker, letter, _ = match.groups()
    start = match.end()
    if marker:
        form = MARKED.get(marker, ": ")
        return {form: start + 2} if text.startswith(": ", start) else {}
    bodies = {s: start + len(s) for s in SEPARATORS if text.startswith(s, start)}
    if letter and text.startswith((": ", "- "), start):
        bodies[L_GREP] = start + 2
    if len(text) <= start + 2:
        rest = text[start:]
        if rest in TRIMMED:
            bodies[TRIMMED[rest]] = len(text)
        if at_end and rest in TRIMMED_AT_END:
            bodies[TRIMMED_AT_END[rest]] = len(text)
    return bodies


def _uint64(digits: str) -> int | None:
    digits = digits.lstrip("0")
    if len(digits) > 20:
        return None
    number = int(digits or "0")
    return number if number <= UINT64_MAX else None


def _grep_line(text: str, path: str) -> NumberedLine | None:
    if path and text.startswith(path):
        # The known path first: file names may hold `-12-` themselves.
        match = _KNOWN_PATH_REST.match(text, len(path))
        if match is not None:
            return _grep(text, path, match[2], match.end())
    match = _HIT.match(text) or _NEAR.match(text)
    if match is None or not any(c.isalpha() for c in match[1]):
        return None
    return _grep(text, match[1], match[2], match.end())


def _grep(text: str, path: str, digits: str, start: int) -> NumberedLine | None:
    number = _uint64(digits)
    return None if number is None else NumberedLine(text, number, {PATH_GREP: start}, path)


def _same_file(path: str, other: str) -> bool:
    """One tool prints the same file's path relative on one line and absolute on the next."""
    longer, shorter = (path, other) if len(path) >= len(other) else (other, path)
    return longer == shorter or longer.endswith("/" + shorter.removeprefix("./"))
