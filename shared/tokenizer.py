"""A model folder's tokenizer, and text out of a stream of tokens."""

import json
from pathlib import Path

import numpy as np
import tokenizers

from shared.errors import CheckpointError

REPLACEMENT = "\N{REPLACEMENT CHARACTER}"


class Tokenizer:
    """Text to token ids and back; ids are int32 arrays."""

    def __init__(
        self, parsing: tokenizers.Tokenizer, plain: tokenizers.Tokenizer, stop_ids: tuple[int, ...]
    ) -> None:
        self._parsing = parsing
        self._plain = plain
        self._plain.encode_special_tokens = True
        added = parsing.get_added_tokens_decoder()
        self.special_ids = frozenset(i for i, token in added.items() if token.special)
        self.special_texts = tuple(t.content for t in added.values() if t.special)
        self.stop_ids = stop_ids
        self.vocab_size: int = parsing.get_vocab_size(with_added_tokens=True)

    @classmethod
    def load(cls, model_dir: Path) -> "Tokenizer":
        """Raises CheckpointError: tokenizer.json is missing or cannot be read."""
        path = model_dir / "tokenizer.json"
        try:
            text = path.read_text(encoding="utf-8")
            parsing, plain = (tokenizers.Tokenizer.from_str(text) for _ in range(2))
        except Exception as exc:
            raise CheckpointError(f"{path} is not a usable tokenizer: {exc}") from exc
        return cls(parsing, plain, _stop_ids(model_dir))

    def encode_text(self, text: str) -> np.ndarray:
        """Special tokens that stand in `text` are plain text; nothing is added."""
        encoded = self._plain.encode(text, add_special_tokens=False)
        return np.array(encoded.ids, dtype=np.int32)

    def encode_prompt(self, text: str) -> np.ndarray:
        """Special tokens in `text` become themselves: for a rendered template."""
        encoded = self._parsing.encode(text, add_special_tokens=False)
        return np.array(encoded.ids, dtype=np.int32)

    def special_id(self, text: str) -> int:
        found: int | None = self._parsing.token_to_id(text)
        assert found is not None, f"{text!r} is not a token"
        return found

    def decode(self, ids: "np.ndarray | list[int]") -> str:
        """Text without the special tokens."""
        text: str = self._parsing.decode([int(i) for i in ids], skip_special_tokens=True)
        return text


def _stop_ids(model_dir: Path) -> tuple[int, ...]:
    for name in ("generation_config.json", "config.json"):
        path = model_dir / name
        if path.is_file():
            value = json.loads(path.read_text(encoding="utf-8")).get("eos_token_id")
            if isinstance(value, int):
                return (value,)
            if isinstance(value, list) and all(isinstance(i, int) for i in value):
                return tuple(value)
    return ()


class Detokenizer:
    """Text token by token. An incomplete character is held back until it is whole.

    Decodes only from the last token whose text is out, so the cost does not grow with the output.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        # [0, anchor)       out and forgotten
        # [anchor, shown)   out; kept, since a token's text may depend on the one before
        # [shown, end)      held back
        self._ids: list[int] = []
        self._shown = 0

    def push(self, token_id: int) -> str:
        self._ids.append(token_id)
        text = self._pending()
        if not text or text.endswith(REPLACEMENT):
            return ""
        self._ids = self._ids[self._shown :]
        self._shown = len(self._ids)
        return text

    def finish(self) -> str:
        """What is still held back, with U+FFFD for a character that never became whole."""
        return self._pending()

    def _pending(self) -> str:
        before = self._tokenizer.decode(self._ids[: self._shown])
        return self._tokenizer.decode(self._ids)[len(before) :]
