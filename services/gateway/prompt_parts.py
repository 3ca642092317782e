"""Which stretches of a prompt are worth retaining, and as what.

Read off the tokens: special tokens part the messages, and what stands between two of them begins
with its role. So nothing depends on how a template is written, and text that merely looks like a
role header (which never becomes a special token) cannot pass for one.
"""

from collections.abc import Callable

import numpy as np

from shared.messages import SpanKind
from shared.tokenizer import Tokenizer

# Enough for a role, a line's end and TOOL_RESULT, even if each byte is a token.
HEADER_TOKENS = 32
SHORTEST_TOKENS = 4  # the archive keeps nothing shorter
OPENING_TOKENS = 4  # as in the engine: within so many, a marker opens reasoning
ROLES = {
    "system": SpanKind.TEXT,
    "developer": SpanKind.TEXT,
    "user": SpanKind.TEXT,
    "assistant": SpanKind.GENERATED,
    "tool": SpanKind.TOOL,
    "function": SpanKind.TOOL,
    "ipython": SpanKind.TOOL,
}
# Templates without a tool role show results in a user message, inside of this.
TOOL_RESULT = "<tool_response>"


def prompt_parts(prompt_ids: np.ndarray, tokenizer: Tokenizer) -> np.ndarray:
    """int32 [3 n]: start, stop and SpanKind of each part, in the order of the prompt.

    Special tokens and role headers are in no part. Text of no known role counts as text.
    """
    is_special = np.isin(prompt_ids, np.fromiter(tokenizer.special_ids, np.int32))
    stops = [*np.flatnonzero(is_special).tolist(), len(prompt_ids)]
    parts: list[int] = []
    start = 0
    kind = SpanKind.TEXT
    for stop in stops:
        segment = prompt_ids[start:stop]
        header = _header(segment, tokenizer.decode)
        if header is not None:
            length, kind = header
            segment = segment[length:]
        begin = stop - len(segment)
        reasoning = 0
        if kind == SpanKind.GENERATED and tokenizer.thinking_ids is not None:
            reasoning = _reasoning(segment, tokenizer.thinking_ids)
            if reasoning >= SHORTEST_TOKENS:
                parts += [begin, begin + reasoning, SpanKind.REASONING]
        if stop - begin - reasoning >= SHORTEST_TOKENS:
            parts += [begin + reasoning, stop, kind]
        start = stop + 1
    return np.array(parts, np.int32)


def _header(
    segment: np.ndarray, decode: Callable[[np.ndarray], str]
) -> tuple[int, SpanKind] | None:
    """How many tokens name the role, and the kind of what follows; None without a header."""
    head = decode(segment[:HEADER_TOKENS])
    role, line_end, rest = head.partition("\n")
    kind = ROLES.get(role.strip())
    if kind is None:
        return None
    if kind == SpanKind.TEXT and rest.startswith(TOOL_RESULT):
        kind = SpanKind.TOOL
    if not line_end:  # the role stands alone between two special tokens
        return len(segment), kind
    length = 1
    while "\n" not in decode(segment[:length]):
        length += 1
    return length, kind


def _reasoning(segment: np.ndarray, marks: tuple[int, int]) -> int:
    """Tokens up to the end of the reasoning that opens the segment."""
    opening, closing = marks
    if opening not in segment[:OPENING_TOKENS]:
        return 0
    closed = np.flatnonzero(segment == closing)
    return int(closed[0]) + 1 if closed.size else len(segment)
