"""The tokens of the latest answers, to show the model its own again.

A text has several spellings in tokens. The model does not always choose the one that the tokenizer
would, and every token behind the first difference would have to be computed again in the
conversation's next turn. So an answer that comes back is shown in the tokens that the model wrote.
"""

import hashlib
from collections import deque
from collections.abc import Sequence

import numpy as np

from shared.tokenizer import Tokenizer

MOST_TOKENS = 1 << 22  # of all answers together, 4 bytes each
MOST_ANSWERS = 1024  # a prompt is hashed to the length of each prompt before: 1 us each


Key = tuple[int, bytes]  # a prompt's length and its hash


class OutputMemory:
    """Answers by the prompt that they followed, of which there may be several.

    Of two with the same text the first is shown, so that it does not change.
    """

    def __init__(self, tokenizer: Tokenizer, most_tokens: int = MOST_TOKENS) -> None:
        self._tokenizer = tokenizer
        self._most_tokens = most_tokens
        self._tokens = 0
        self._answers: dict[Key, list[np.ndarray]] = {}  # without the stop token; the oldest first
        self._order: deque[Key] = deque()  # of each answer, the oldest first

    def keep(self, prompt_ids: np.ndarray, salt: str, output_ids: Sequence[int]) -> None:
        """The oldest answers make room."""
        ended = bool(output_ids) and output_ids[-1] in self._tokenizer.stop_ids
        answer = np.array(output_ids[:-1] if ended else output_ids, np.int32)
        key = (len(prompt_ids), _Walk(salt).to(prompt_ids, len(prompt_ids)))
        known = self._answers.setdefault(key, [])
        if any(np.array_equal(answer, one) for one in known):
            return
        known.append(answer)
        self._order.append(key)
        self._tokens += len(answer)
        while self._tokens > self._most_tokens or len(self._order) > MOST_ANSWERS:
            self._forget(self._order.popleft())

    def restore(self, prompt_ids: np.ndarray, salt: str) -> np.ndarray:
        """The prompt, with the model's own tokens wherever they have the same text."""
        walk = _Walk(salt)
        for length in sorted({length for length, _ in list(self._answers)}):
            if length >= len(prompt_ids):
                break
            answers = self._answers.get((length, walk.to(prompt_ids, length)))
            if answers is not None:
                prompt_ids = self._with_own(prompt_ids, length, answers)
        return prompt_ids

    def _forget(self, key: Key) -> None:
        """The oldest answer to that prompt."""
        answers = self._answers[key]
        self._tokens -= len(answers[0])
        if len(answers) > 1:
            self._answers[key] = answers[1:]  # `restore` may be reading the list in its thread
        else:
            del self._answers[key]

    def _with_own(
        self, prompt_ids: np.ndarray, start: int, answers: Sequence[np.ndarray]
    ) -> np.ndarray:
        """A turn ends at the next special token; nothing merges across one."""
        special = np.isin(prompt_ids[start:], list(self._tokenizer.special_ids))
        end = start + int(special.argmax()) if special.any() else len(prompt_ids)
        text = self._text(prompt_ids[start:end])
        for answer in answers:
            if self._text(answer) == text:
                return np.concatenate((prompt_ids[:start], answer, prompt_ids[end:]))
        return prompt_ids

    def _text(self, ids: np.ndarray) -> str:
        return self._tokenizer.decode_all(ids.tolist())


class _Walk:
    """The hash of a prompt's beginning, further and further."""

    def __init__(self, salt: str) -> None:
        self._hash = hashlib.blake2b(salt.encode(), digest_size=16)
        self._length = 0

    def to(self, ids: np.ndarray, length: int) -> bytes:
        self._hash.update(np.ascontiguousarray(ids[self._length : length], np.int32).tobytes())
        self._length = length
        return self._hash.digest()


class AnswerTokens:
    """Collects one answer's tokens, and keeps them when it has ended."""

    def __init__(self, memory: OutputMemory, prompt_ids: np.ndarray, salt: str) -> None:
        self._memory = memory
        self._prompt_ids, self._salt = prompt_ids, salt
        self._ids: list[int] = []

    def add(self, token_ids: Sequence[int]) -> None:
        self._ids += token_ids

    def keep(self) -> None:
        self._memory.keep(self._prompt_ids, self._salt, self._ids)
