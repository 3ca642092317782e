"""The same text as other outputs spell it: with a prefix on each line, or escaped in JSON.

A token rarely ends where a line begins, so a copy of the plain text breaks at every line of a
patch and of a JSON string. A view holds the text as it would be written there.
"""

import json
from collections.abc import Iterator

# Context and removed lines of a unified diff and of an apply_patch patch. Added lines are new.
PATCH_PREFIXES = (" ", "-")


def patch_views(text: str) -> Iterator[str]:
    """`text` with every line, empty ones too, behind each of the prefixes."""
    lines = text.split("\n")
    final = lines.pop()  # behind the last LF; empty if the text ends with one
    if final:
        lines.append(final)
    for prefix in PATCH_PREFIXES:
        body = "\n".join(prefix + line for line in lines)
        yield body if final else body + "\n"


def json_view(text: str) -> str:
    """`text` as it stands inside a JSON string."""
    return json.dumps(text, ensure_ascii=False)[1:-1]
