"""A model folder's tokenizer, and text out of a stream of tokens."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tokenizers

from shared.errors import CheckpointError

REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
# A character takes at most 4 tokens (4 bytes). More tokens than this without a whole character
# are garbage, whose replacement characters need not be held back.
MOST_HELD = 8
LONGEST_TAIL = 4
# Some tokenizers call these special, although an output's reader needs them.
MARKUP = ("<think>", "</think>", "<tool_call>", "</tool_call>")


def _byte_level_alphabet() -> dict[str, int]:
    """The printable characters that byte-level BPE spells bytes with (GPT-2)."""
    shown = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    hidden = [byte for byte in range(256) if byte not in shown]
    return {chr(byte): byte for byte in shown} | {
        chr(256 + i_hidden): byte for i_hidden, byte in enumerate(hidden)
    }


_BYTES = _byte_level_alphabet()


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
        markup = {parsing.token_to_id(text) for text in MARKUP}
        self._silent_ids = self.special_ids - markup
        self.stop_ids = stop_ids
        opening, closing = (parsing.token_to_id(text) for text in ("<think>", "</think>"))
        # the tokens that open and close reasoning, if the model has them
        self.thinking_ids: tuple[int, int] | None = None
        if opening is not None and closing is not None:
            self.thinking_ids = (opening, closing)
        # a token is at least as long in the vocabulary's spelling as its text is in characters
        self.longest_token = max(map(len, parsing.get_vocab(with_added_tokens=True)), default=1)
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
        for each in (parsing, plain):
            each.no_truncation()
            each.no_padding()
        return cls(parsing, plain, _stop_ids(model_dir, parsing))

    def encode_text(self, text: str) -> np.ndarray:
        """Special tokens that stand in `text` are plain text; nothing is added."""
        return _encode(self._plain, text)

    def encode_prompt(self, text: str) -> np.ndarray:
        """Special tokens in `text` become themselves: for a rendered template."""
        return _encode(self._parsing, text)

    def special_id(self, text: str) -> int:
        found: int | None = self._parsing.token_to_id(text)
        assert found is not None, f"{text!r} is not a token"
        return found

    def is_silent(self, token_id: int) -> bool:
        """No text: special and no markup, or an id beyond the tokenizer's own."""
        return token_id in self._silent_ids or self._parsing.id_to_token(token_id) is None

    def token_bytes(self, token_id: int) -> bytes:
        """The UTF-8 bytes that this token stands for; a part of a character has no text alone."""
        text: str = self._parsing.decode([token_id], skip_special_tokens=False)
        if "\ufffd" not in text:
            return text.encode()
        spelled = self._parsing.id_to_token(token_id) or ""
        if len(spelled) == 6 and spelled.startswith("<0x"):  # a byte token of byte fallback
            return bytes([int(spelled[3:5], 16)])
        return bytes(_BYTES[c] for c in spelled if c in _BYTES)

    def decode_all(self, ids: list[int]) -> str:
        """Text with the special tokens as they are spelled."""
        text: str = self._parsing.decode(ids, skip_special_tokens=False)
        return text

    def decode(self, ids: "np.ndarray | list[int]") -> str:
        """Text without the special tokens, but with markup that means something in an output."""
        spoken = [int(i) for i in ids if int(i) not in self._silent_ids]
        text: str = self._parsing.decode(spoken, skip_special_tokens=False)
        return text


def _encode(tokenizer: tokenizers.Tokenizer, text: str) -> np.ndarray:
    """A batch of one, because only batches let other threads run meanwhile."""
    (encoded,) = tokenizer.encode_batch_fast([text], add_special_tokens=False)
    return np.array(encoded.ids, dtype=np.int32)


def read_settings(path: Path) -> dict[str, Any]:
    """A JSON object of a model folder; empty if the file is absent.

    Raises:
        CheckpointError: the file cannot be read, or holds something else.
    """
    if not path.is_file():
        return {}
    try:
        settings = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as exc:
        raise CheckpointError(f"{path} cannot be read: {exc}") from exc
    if not isinstance(settings, dict):
        raise CheckpointError(f"{path} is not a JSON object")
    return settings


def token_text(value: Any) -> str | None:
    """A special token as tokenizer_config.json gives it: a string, or an object around one."""
    if isinstance(value, dict):
        value = value.get("content")
    return value if isinstance(value, str) else None


def _stop_ids(model_dir: Path, parsing: tokenizers.Tokenizer) -> tuple[int, ...]:
    """The ends of output that the model's settings name, and the tokenizer's own end."""
    found: list[int] = []
    for name in ("generation_config.json", "config.json"):
        value = read_settings(model_dir / name).get("eos_token_id")
        ids = value if isinstance(value, list) else [value]
        found += [i for i in ids if isinstance(i, int) and i not in found]
        if found:
            break
    text = token_text(read_settings(model_dir / "tokenizer_config.json").get("eos_token"))
    own = parsing.token_to_id(text) if text else None
    if own is not None and own not in found:
        found.append(own)
    return tuple(found)


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
        if self._tokenizer.is_silent(token_id):
            return ""
        self._ids.append(token_id)
        text = self._pending(len(self._ids))
        if text and not text.endswith(REPLACEMENT):
            return self._advance(len(self._ids), text)
        if len(self._ids) - self._shown > MOST_HELD:
            return self._give_up()
        return ""

    def push_all(self, token_ids: Sequence[int]) -> str:
        """As `push` for each, in one decoding where no character is cut at the end."""
        spoken = [i for i in token_ids if not self._tokenizer.is_silent(i)]
        if not spoken:
            return ""
        held = len(self._ids)
        self._ids += spoken
        text = self._pending(len(self._ids))
        if text and not text.endswith(REPLACEMENT):
            return self._advance(len(self._ids), text)
        del self._ids[held:]
        return "".join(map(self.push, spoken))

    def finish(self) -> str:
        """What is still held back, with U+FFFD for a character that never became whole."""
        return self._pending(len(self._ids))

    def _pending(self, end: int) -> str:
        before = self._tokenizer.decode(self._ids[: self._shown])
        return self._tokenizer.decode(self._ids[:end])[len(before) :]

    def _advance(self, end: int, text: str) -> str:
        """Releases the tokens before `end`."""
        self._ids = self._ids[self._shown :]
        self._shown = end - self._shown
        return text

    def _give_up(self) -> str:
        """Releases what no later token can change: all before a tail that stands by itself."""
        whole = self._pending(len(self._ids))
        for end in range(len(self._ids) - LONGEST_TAIL, len(self._ids)):
            text = self._pending(end)
            tail = self._tokenizer.decode(self._ids[end:])
            if tail and text + tail == whole:
                return self._advance(end, text)
        return ""
