"""Files that stand in a prompt outside of tool results."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.matching.pasted import argument_texts, fenced_blocks

CODE = "def f():\n    return 1\n\n"


@pytest.mark.parametrize(
    "text",
    [
        f"Fix this:\n```python\n{CODE}```\nthanks",
        f"~~~\n{CODE}~~~",
        f"  ````md\n{CODE}  ````\n",
        f"```\n{CODE}",
        f"```\none line\n```\n```py\n{CODE}```",
    ],
)
def test_a_pasted_block_is_found(text: str) -> None:
    assert list(fenced_blocks(text)) == [CODE]


def test_a_fence_is_closed_only_by_its_own_kind_and_length() -> None:
    body = "a\n~~~\n``\n```\nb\n"
    assert list(fenced_blocks(f"````\n{body}````")) == [body]


def test_a_fence_with_words_behind_it_closes_nothing() -> None:
    assert list(fenced_blocks("```\na\n``` b\nc\n```")) == ["a\n``` b\nc\n"]


def test_line_ends_are_kept() -> None:
    assert list(fenced_blocks("```\r\na\r\nb\r\n\r\n```\r\n")) == ["a\r\nb\r\n\r\n"]


@pytest.mark.parametrize("text", ["", "no fence", "```\na\nb\n```", "    ```\na\nb\nc\n"])
def test_short_blocks_and_indented_fences_are_none(text: str) -> None:
    assert list(fenced_blocks(text)) == []


@given(st.text(st.sampled_from("`~ a\n\r"), max_size=80))
def test_blocks_are_parts_of_the_text_in_order(text: str) -> None:
    at = 0
    for block in fenced_blocks(text):
        at = text.index(block, at) + len(block)


def test_the_long_strings_of_a_calls_arguments_are_found_in_order() -> None:
    arguments = {"path": "a.py", "edits": [{"old": CODE, "new": f"x\n{CODE}"}], "mode": "1\n2"}
    assert list(argument_texts(json.dumps(arguments))) == [CODE, f"x\n{CODE}"]


@pytest.mark.parametrize("arguments", ["", "{", "null", "[" * 100_000, '"short"'])
def test_arguments_without_texts_have_none(arguments: str) -> None:
    assert list(argument_texts(arguments)) == []
