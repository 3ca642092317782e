"""Which part of an output is reasoning, and which is its text."""

import numpy as np

from shared.messages import SpanKind

# A model that thinks opens its reasoning at once; later the marker is a word like any other.
OPENING_TOKENS = 4


def output_parts(
    tokens: np.ndarray, prompt_len: int, thinking: tuple[int, int] | None
) -> np.ndarray:
    """int32 [3 n]: start, stop and kind of the output's parts in `tokens` (prompt and output).

    `thinking` are the ids that open and close reasoning. It may have been opened by the prompt.
    """
    end = len(tokens)
    reasoning_end = prompt_len
    if thinking is not None:
        opening, closing = thinking
        output = tokens[prompt_len:]
        tail = tokens[max(0, prompt_len - OPENING_TOKENS) : prompt_len]
        opened = np.flatnonzero(tail == opening)
        in_prompt = opened.size > 0 and not (tail[opened[-1] :] == closing).any()
        if in_prompt or (output[:OPENING_TOKENS] == opening).any():
            closed = np.flatnonzero(output == closing)
            reasoning_end = prompt_len + int(closed[0]) + 1 if closed.size else end
    parts = [
        (prompt_len, reasoning_end, SpanKind.REASONING),
        (reasoning_end, end, SpanKind.GENERATED),
    ]
    whole = [number for part in parts if part[0] < part[1] for number in part]
    return np.array(whole, np.int32)
