"""What a numbered listing numbers: the text of the file itself, byte for byte.

Agents read files through tools that number the lines; the model writes them without. Every run of
at least three lines of one form with consecutive numbers (increasing ones for grep) becomes a
source of its own. No client is told apart from another, and time is linear in the text.
"""

import json
from collections.abc import Iterator

from shared.matching.numbered import FORMS, NumberedLine, body_end, parse_line

SHORTEST_RUN = 3  # lines
# Where JSON-wrapped results keep their text.
JSON_TEXT_KEYS = ("result", "output", "content", "text")


def derived_sources(tool_text: str) -> Iterator[str]:
    """The de-numbered sources of one tool result, in the order in which they are found."""
    for text in _payloads(tool_text):
        yield from _listings(text)


def changed_texts(tool_text: str) -> Iterator[str]:
    """What one tool result shows of files in another spelling than its own: its listings without
    their numbers, and what a JSON-wrapped result holds, unescaped."""
    for text in _payloads(tool_text):
        listings = list(_listings(text))
        if listings or text is not tool_text:
            yield from listings or (text,)


def file_texts(tool_text: str) -> Iterator[str]:
    """What one tool result shows of files: of each part its listings, else all of its text."""
    for text in _payloads(tool_text):
        listings = list(_listings(text))
        yield from listings or (text,)


def _payloads(text: str) -> Iterator[str]:
    """The text itself, or the strings of a JSON-wrapped result, unescaped."""
    if text.lstrip()[:1] not in ("[", "{"):
        yield text
        return
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        yield text
        return
    pending = [document]
    while pending:
        value = pending.pop()
        if isinstance(value, list):
            pending.extend(reversed(value))
        elif isinstance(value, dict):
            yield from (v for k in JSON_TEXT_KEYS if isinstance(v := value.get(k), str))
            pending.extend(v for v in reversed(value.values()) if isinstance(v, list | dict))


def _listings(text: str) -> Iterator[str]:
    """Sources of one unwrapped text. Lines end at LF only; a CR before it belongs to the body."""
    lines = text.split("\n")
    final = len(lines) - 1  # what follows the last LF, often nothing
    run: list[NumberedLine] = []
    forms = FORMS
    for index, content in enumerate(lines):
        path = run[-1].path if run else ""
        line = parse_line(content, at_end=index == final, path=path)
        if line is not None and run:
            shared = tuple(form for form in forms if line.follows(run[-1], form))
            if shared:
                run.append(line)
                forms = shared
                continue
        yield from _sources(run, forms, ends_with_lf=True)
        run = [] if line is None else [line]
        forms = FORMS if line is None else tuple(form for form in FORMS if form in line.bodies)
    yield from _sources(run, forms, ends_with_lf=False)


def _sources(
    run: list[NumberedLine], forms: tuple[str, ...], *, ends_with_lf: bool
) -> Iterator[str]:
    """The run's text; a line that was cut short ends one source, the next line starts another."""
    if len(run) < SHORTEST_RUN:
        return
    piece: list[str] = []
    for index, line in enumerate(run):
        body = line.text[line.bodies[forms[0]] :]
        end = body_end(body)
        if end is not None:
            yield "".join((*piece, body[:end]))
            piece = []
        else:
            piece.append(body)
            if ends_with_lf or index < len(run) - 1:
                piece.append("\n")
    if piece:
        yield "".join(piece)
