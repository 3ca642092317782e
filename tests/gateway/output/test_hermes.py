"""Hermes' JSON calls: where they begin and end, and that arguments are always valid JSON."""

import json
from typing import Any

import pytest

from tests.gateway.output.reading import call, parse, read, short


def hermes(name: str, arguments: Any) -> str:
    body = json.dumps({"name": name, "arguments": arguments}, ensure_ascii=False)
    return f"<tool_call>\n{body}\n</tool_call>"


NESTED = {"a": [1, -2.5e3, True, None, {"b": '日 " \\ \n \t </tool_call> \u0001'}], "c": {}}


@pytest.mark.parametrize("arguments", [{}, {"path": "a.py"}, NESTED, {"t": "👩‍👩‍👧"}, {"x": []}])
def test_a_call_has_its_arguments(arguments: Any) -> None:
    assert read(hermes("read", arguments), "hermes") == [("call", "read", arguments, True)]


@pytest.mark.parametrize(
    "body",
    [
        '{"arguments": {"path": "</tool_call>"}, "name": "read"}',
        '{"name": "read", "arguments": "{\\"path\\": \\"</tool_call>\\"}"}',
        '{"name": "read", "parameters": {"path": "</tool_call>"}}',
        ' { "name" : "read" , "arguments" : { "path" : "</tool_call>" } } ',
        '[{"name": "read", "arguments": {"path": "</tool_call>"}}]',
    ],
)
def test_other_orders_and_spellings(body: str) -> None:
    text = f"<tool_call>{body}</tool_call>"
    assert read(text, "hermes") == [call("read", path="</tool_call>")]


@pytest.mark.parametrize("body", ['{"name": "read"}', '{"name": "read", "arguments": null}'])
def test_a_call_without_arguments(body: str) -> None:
    assert read(f"<tool_call>\n{body}\n</tool_call>", "hermes") == [call("read")]


def test_text_calls_and_text() -> None:
    text = f"Look.\n{hermes('read', {'a': 1})}\n{hermes('edit', {})}\nDone."
    assert read(text, "hermes") == [
        ("say", "Look."),
        call("read", a=1),
        call("edit"),
        ("say", "Done."),
    ]


def test_a_list_of_calls() -> None:
    one, two = '{"name": "read", "arguments": {"a": 1}}', '{"arguments": {}, "name": "edit"}'
    text = f"<tool_call>[{one}, {two}]</tool_call>"
    assert read(text, "hermes") == [call("read", a=1), call("edit")]


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        ('{"a": "line\nbreak\tand tab"}', {"a": "line\nbreak\tand tab"}),
        ('{"a": True, "b": None,}', {"a": True, "b": None}),
        ('{"a": [1, 2,],}', {"a": [1, 2]}),
        (r'{"a": "it\'s \d \u00e9 \ud83d\ude00 \ud83d!"}', {"a": "it's \\d é 😀 \ufffd!"}),
        ('{"a":1,"b":{"c":2}}', {"a": 1, "b": {"c": 2}}),
    ],
)
def test_small_slips_are_put_right(raw: str, expected: Any) -> None:
    text = f'<tool_call>\n{{"name": "read", "arguments": {raw}}}\n</tool_call>'
    assert read(text, "hermes") == [("call", "read", expected, True)]


@pytest.mark.parametrize(
    ("raw", "arguments", "rest"),
    [
        ('{"a": nope}', {"a": None}, "nope}}"),
        ('{"a" 1}', {"a": None}, "1}}"),
        ('{"a": 1]}', {"a": 1}, "]}}"),
        ("{5: 1}", {}, "5: 1}}"),
    ],
)
def test_what_is_no_json_ends_the_call_and_is_shown(raw: str, arguments: Any, rest: str) -> None:
    text = f'<tool_call>{{"name": "read", "arguments": {raw}}}'
    assert read(text, "hermes") == [("call", "read", arguments, False), ("say", rest)]


@pytest.mark.parametrize(
    "text",
    [
        '<tool_call>\n{"name": "unknown", "arguments": {}}\n</tool_call>',
        '<tool_call>\n{"name": "',
        '<tool_call>\n{"arguments": {"a": 1}, "name": "unknown"}\n</tool_call>',
        '<tool_call>\n{"arguments": [1], "name": "read"}\n</tool_call>',
        '<tool_call>\n{"arguments": {"a": 1}',
        "<tool_call>[]</tool_call>",
        "the tag <tool_call> opens",
    ],
)
def test_what_is_no_call_of_a_known_tool_is_text(text: str) -> None:
    assert read(text, "hermes") == [("say", text)]


def test_whatever_is_cut_the_arguments_are_an_object() -> None:
    text = hermes("edit", NESTED)
    for end in range(text.index('s": {') + 5, len(text)):
        ((kind, name, arguments, complete),) = read(text[:end], "hermes")
        assert (kind, name) == ("call", "edit")
        assert isinstance(arguments, dict)
        assert complete == (end >= text.rindex("}}") + 1)


@pytest.mark.parametrize(
    ("hostile", "size"),
    [
        ('<tool_call>{"name": "', 1_000_000),
        ('<tool_call>{"arguments": {', 250_000),
        ('<tool_call>{"arguments": "', 250_000),
        ("<tool_call>[{", 1_000_000),
        ("<", 1_000_000),
        ("\\", 1_000_000),
    ],
)
def test_much_near_markup_is_read(hostile: str, size: int) -> None:
    text = hostile * (size // len(hostile)) + "."
    assert short(parse([text], "hermes")) == [("say", text)]
