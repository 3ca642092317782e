"""However an output is cut into pieces, the events are the same; and no text is lost."""

import itertools
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.gateway.output.json_object import JsonObject
from tests.gateway.output.reading import parse, short

WORDS = [
    "<think>",
    "</think>",
    "<tool_call>",
    "</tool_call>",
    "<function=edit>",
    "<function=other>",
    "</function>",
    "<parameter=text>",
    "<parameter=count>",
    "<parameter=maybe>",
    "<parameter=any>",
    "</parameter>",
    '{"name": "edit", "arguments": ',
    '{"name": "other", "arguments": ',
    '{"arguments": ',
    ', "name": "read"}',
    '{"a": ',
    '"b"',
    "}",
    "]",
    "[",
    ",",
    ":",
    '"',
    "\\",
    "\\u00e9",
    "\\ud83d",
    "null",
    "nul",
    "true",
    "12",
    "\n",
    "\n\n",
    " ",
    "`",
    "<",
    "</",
    "text",
    "é👩‍👩‍👧",
]
texts = st.lists(st.sampled_from(WORDS), max_size=24).map("".join) | st.text(max_size=30)
dialects: Any = st.sampled_from(["qwen", "hermes", "none"])


def pieces_of(text: str, cuts: list[int]) -> list[str]:
    ends = sorted({min(cut, len(text)) for cut in cuts} | {0, len(text)})
    return [text[a:b] for a, b in itertools.pairwise(ends)]


@settings(max_examples=600, deadline=None)
@given(text=texts, cuts=st.lists(st.integers(0, 200), max_size=12), dialect=dialects, opens=...)
def test_cuts_change_nothing(text: str, cuts: list[int], dialect: Any, opens: bool) -> None:
    whole = short(parse([text], dialect, opens_thinking=opens))
    assert short(parse(pieces_of(text, cuts), dialect, opens_thinking=opens)) == whole
    assert short(parse(text, dialect, opens_thinking=opens)) == whole


SAMPLES = [
    "<think>\nhm\n</think>\n\nok\n\n<tool_call>\n<function=edit>\n<parameter=text>\n a\n\n"
    "</parameter>\n<parameter=count>\n3\n</parameter>\n</function>\n</tool_call>\n<tool_call>\n"
    "<function=read>\n</function>\n</tool_call>",
    'x\n<tool_call>\n{"name": "edit", "arguments": {"a": ["\\u00e9\\n", 1.5, null]}}\n</tool_call>',
    '<tool_call>[{"arguments": {"a": true}, "name": "edit"}, {"name": "read"}]</tool_call>!',
]


@pytest.mark.parametrize("dialect", ["qwen", "hermes"])
@pytest.mark.parametrize("text", SAMPLES)
def test_every_single_and_double_cut_gives_the_same(text: str, dialect: Any) -> None:
    whole = short(parse([text], dialect))
    for first in range(len(text)):
        assert short(parse([text[:first], text[first:]], dialect)) == whole
        middle = text[first : first + 9]
        assert short(parse([text[:first], middle, text[first + 9 :]], dialect)) == whole


@settings(max_examples=300, deadline=None)
@given(text=texts.filter(lambda t: "<think>" not in t and "</think>" not in t))
def test_text_without_calls_is_passed_on_whole(text: str) -> None:
    for dialect in ("qwen", "hermes"):
        found = short(parse(text, dialect))  # type: ignore[arg-type]
        if not any(item[0] == "call" for item in found):
            assert "".join(item[1] for item in found) == text


numbers = st.integers() | st.floats(allow_nan=False, allow_infinity=False)
JSON: Any = st.recursive(
    st.none() | st.booleans() | numbers | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)


@settings(max_examples=100, deadline=None)
@given(value=st.dictionaries(st.text(), JSON), ascii_only=..., indent=st.sampled_from([None, 2]))
def test_valid_json_keeps_its_value(value: Any, ascii_only: bool, indent: int | None) -> None:
    text = json.dumps(value, ensure_ascii=ascii_only, indent=indent)
    for size in (1, len(text)):
        scanner, out, held = JsonObject(), list[str](), ""
        for start in range(0, len(text), size):
            held += text[start : start + size]
            held = held[scanner.feed(held, 0, out, final=False) :]
        assert scanner.is_whole
        assert json.loads("".join(out)) == value


@settings(max_examples=300, deadline=None)
@given(text=texts)
def test_anything_becomes_valid_json(text: str) -> None:
    scanner, out = JsonObject(), list[str]()
    scanner.feed("{" + text, 0, out, final=True)
    assert isinstance(json.loads("".join(out) + scanner.close()), dict)
