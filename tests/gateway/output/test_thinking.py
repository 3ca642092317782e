"""Thinking and content: where one ends and the other begins."""

from typing import Any

import pytest

from tests.gateway.output.reading import call, read
from tests.gateway.output.test_qwen import xml


@pytest.mark.parametrize(
    ("text", "opens", "expected"),
    [
        ("<think>\nhm\n</think>\n\nYes", False, [("think", "hm"), ("say", "Yes")]),
        ("hm\n</think>\n\nYes", True, [("think", "hm"), ("say", "Yes")]),
        ("<think>\nhm</think>Yes", True, [("think", "hm"), ("say", "Yes")]),
        ("\n <think>hm</think>Yes", False, [("think", "hm"), ("say", "Yes")]),
        ("hm\n\n</think>\n\n  code", True, [("think", "hm\n"), ("say", "  code")]),
        ("hm", True, [("think", "hm")]),
        ("hm\n", True, [("think", "hm\n")]),
        ("hm\n</thi", True, [("think", "hm\n</thi")]),
        ("\n\n</think>\n\n", True, []),
        ("Yes <think>no</think>\n", False, [("say", "Yes <think>no</think>\n")]),
        ("\n\nYes\n\n", False, [("say", "\n\nYes\n\n")]),
        (
            "the `</think>` tag\n</think>\nYes",
            True,
            [("think", "the `</think>` tag"), ("say", "Yes")],
        ),
        ("<th", False, [("say", "<th")]),
    ],
)
@pytest.mark.parametrize("dialect", ["none", "qwen", "hermes"])
def test_thinking_ends_at_its_mark(text: str, opens: bool, expected: Any, dialect: Any) -> None:
    assert read(text, dialect, opens_thinking=opens) == expected


def test_only_a_model_that_thinks_has_thinking() -> None:
    text = "<think>hm</think>Yes"
    assert read(text, "none", thinks=False) == [("say", text)]
    assert read(text, "qwen", thinks=False) == [("say", text)]


def test_whitespace_between_thinking_and_a_call_is_nobodys() -> None:
    text = f"hm\n</think>\n\n \n{xml('read')}"
    assert read(text, "qwen", opens_thinking=True) == [("think", "hm"), call("read")]


def test_a_call_at_the_start_of_a_line_ends_thinking_by_itself() -> None:
    text = f"I will read.\n{xml('read', ('path', 'a'))}"
    expected = [("think", "I will read."), call("read", path="a")]
    assert read(text, "qwen", opens_thinking=True) == expected


def test_a_call_inside_a_line_of_thinking_is_thought() -> None:
    text = f"It writes {xml('read')} then\n</think>\nYes"
    expected = [("think", f"It writes {xml('read')} then"), ("say", "Yes")]
    assert read(text, "qwen", opens_thinking=True) == expected


def test_a_call_of_an_unknown_tool_in_thinking_is_thought() -> None:
    text = f"hm\n{xml('unknown')}\n</think>\nYes"
    expected = [("think", f"hm\n{xml('unknown')}"), ("say", "Yes")]
    assert read(text, "qwen", opens_thinking=True) == expected
