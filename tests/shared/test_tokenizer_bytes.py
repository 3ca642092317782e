"""A token's bytes, also where they are only a part of a character."""

from pathlib import Path

import pytest

from shared.tokenizer import Tokenizer


@pytest.mark.parametrize(
    "text", ["plain words", "naïve →", "日本語の文", "👩‍💻 emoji", "tab\tand\nline"]
)
def test_the_bytes_of_all_tokens_are_the_text(tiny_model: Path, text: str) -> None:
    tokenizer = Tokenizer.load(tiny_model)
    ids = tokenizer.encode_text(text).tolist()
    assert b"".join(tokenizer.token_bytes(i) for i in ids) == text.encode()
