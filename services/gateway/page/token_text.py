"""Token ids as a page shows them: special tokens as they are spelled, places in UTF-16 units."""

from collections.abc import Collection

from shared.messages import Tokens
from shared.tokenizer import Detokenizer, Tokenizer


class TokenText:
    """Text of ids that come in pieces. What ends inside a character comes with the next piece."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._detokenizer = Detokenizer(tokenizer)

    def push(self, ids: list[int]) -> str:
        text, run = [], []
        for token_id in ids:
            if not self._tokenizer.is_silent(token_id):
                run.append(token_id)
                continue
            text += [self._detokenizer.push_all(run), self.finish()]
            text.append(self._tokenizer.decode_all([token_id]))
            run = []
        text.append(self._detokenizer.push_all(run))
        return "".join(text)

    def finish(self) -> str:
        """What was held back; the next piece begins anew."""
        held = self._detokenizer.finish()
        self._detokenizer = Detokenizer(self._tokenizer)
        return held


def text_with_offsets(
    tokenizer: Tokenizer, ids: Tokens, edges: Collection[int]
) -> tuple[str, dict[int, int]]:
    """The text, and for each edge (a number of tokens) how many UTF-16 units stand before it."""
    shown = TokenText(tokenizer)
    text: list[str] = []
    offsets, units, before = {}, 0, 0
    for edge in sorted({*edges, len(ids)}):
        piece = shown.push(ids[before:edge].tolist())
        if edge == len(ids):
            piece += shown.finish()
        text.append(piece)
        units += utf16_units(piece)
        offsets[edge] = units
        before = edge
    return "".join(text), offsets


def utf16_units(text: str) -> int:
    """How long JavaScript finds it."""
    return len(text) + sum(character > "\uffff" for character in text)
