"""Qwen's XML calls: where they begin and end, and what their values mean."""

from typing import Any

import pytest

from tests.gateway.output.reading import call, parse, read, short


def xml(name: str, *pairs: tuple[str, str]) -> str:
    values = "".join(f"<parameter={key}>\n{value}\n</parameter>\n" for key, value in pairs)
    return f"<tool_call>\n<function={name}>\n{values}</function>\n</tool_call>"


def value_of(key: str, raw: str) -> Any:
    ((_, _, arguments, complete),) = read(xml("edit", (key, raw)), "qwen")
    assert complete
    return arguments[key]


def test_text_then_calls_without_the_layout_between_them() -> None:
    text = f"Let me look.\n\n{xml('read', ('path', 'a.py'))}\n{xml('edit', ('text', 'x'))}\n"
    assert read(text, "qwen") == [
        ("say", "Let me look."),
        call("read", path="a.py"),
        call("edit", text="x"),
    ]


def test_a_call_without_parameters() -> None:
    assert read(xml("read"), "qwen") == [call("read")]


@pytest.mark.parametrize(
    "raw",
    [
        "    if x:\n        y()",
        "\n\nblank lines around\n\n",
        "trailing  ",
        "",
        "\n",
        " ",
        '"quotes" \\ and \t tabs',
        "&lt;b&gt; &amp;",
        "03106",
        "123",
        "true",
        "null",
        '{"a": 1}',
        "日本語 👩‍👩‍👧 é",
        "a < b </param > <parameter=x> </function> </parameter>",
        "<tool_call>\n<function=edit>\n<parameter=text>",
        "</parameter>\nnot markup",
        "</tool_call>",
        "</think>",
    ],
)
def test_strings_are_verbatim(raw: str) -> None:
    assert value_of("text", raw) == raw


@pytest.mark.parametrize(
    ("key", "raw", "expected"),
    [
        ("count", "3", 3),
        ("count", "many", "many"),
        ("flag", "true", True),
        ("flag", "False", False),
        ("flag", "None", None),
        ("deep", '{"a": [1, {"b": null}]}', {"a": [1, {"b": None}]}),
        ("deep", "{broken", "{broken"),
        ("deep", "[" * 50_000, "[" * 50_000),
        ("list", '["x"]', ["x"]),
        ("maybe", "null", None),
        ("maybe", "None", None),
        ("maybe", "nullable", "nullable"),
        ("maybe", "nul", "nul"),
        ("maybe", "text", "text"),
        ("mode", "a", "a"),
        ("any", "text", "text"),
        ("any", "5", "5"),
        ("any", ' {"a": 1}', {"a": 1}),
        ("any", "{not json", "{not json"),
        ("either", '["a"]', ["a"]),
        ("either", "a", "a"),
        ("unknown", "x", "x"),
    ],
)
def test_other_values_are_read_by_their_schema(key: str, raw: str, expected: Any) -> None:
    assert value_of(key, raw) == expected


def test_values_without_layout_newlines() -> None:
    text = "<tool_call><function=read><parameter=path>a</parameter></function></tool_call>"
    assert read(text, "qwen") == [call("read", path="a")]


@pytest.mark.parametrize(
    "text",
    [
        "Use <tool_call> for that.",
        "<tool_call>\n<function=unknown>\n</function>\n</tool_call>",
        "<tool_call>\n<function=",
        "<tool_call>          \n\n\n<function=read>",
        "<tool_call>\nread(a)",
        "a <b> </tool_call> </function> c",
        "<",
        "<tool_cal",
    ],
)
def test_what_is_no_call_of_a_known_tool_is_text(text: str) -> None:
    assert read(text, "qwen") == [("say", text)]


def test_a_second_value_of_one_key_is_dropped() -> None:
    text = xml("edit", ("path", "a"), ("path", "b"), ("text", "c"))
    assert read(text, "qwen") == [call("edit", path="a", text="c")]


def test_two_functions_in_one_tool_call() -> None:
    text = "<tool_call>\n<function=read>\n</function>\n<function=edit>\n</function>\n</tool_call>!"
    assert read(text, "qwen") == [call("read"), call("edit"), ("say", "!")]


def test_text_behind_a_call_is_kept() -> None:
    assert read(xml("read") + "\n\nDone.\n", "qwen") == [call("read"), ("say", "Done.\n")]


def test_a_call_ends_where_only_the_markup_is_cut() -> None:
    whole = xml("read", ("path", "a"))
    ends = [len(whole), whole.index("</function>"), whole.index("\n</function>") + 5]
    for end in ends:
        assert read(whole[:end], "qwen") == [call("read", path="a")], whole[:end]


def test_a_forgotten_parameter_end_is_forgiven() -> None:
    text = "<tool_call>\n<function=read>\n<parameter=path>\na\n</function>\n</tool_call>"
    assert read(text, "qwen") == [call("read", path="a")]
    assert read(f"{text}\n{xml('edit')}", "qwen") == [call("read", path="a"), call("edit")]


def test_whatever_is_cut_the_arguments_are_an_object() -> None:
    text = xml("edit", ("text", 'a "b"\n'), ("count", "12"), ("deep", '{"a": [1]}'), ("maybe", "x"))
    for end in range(text.index("<function=edit>") + len("<function=edit>"), len(text)):
        ((kind, name, arguments, _),) = read(text[:end], "qwen")
        assert (kind, name) == ("call", "edit")
        assert set(arguments) <= {"text", "count", "deep", "maybe"}


def test_a_cut_value_is_not_complete() -> None:
    text = xml("edit", ("text", "abc"))
    assert read(text[: text.index("c\n") + 1], "qwen") == [call("edit", complete=False, text="abc")]


def test_a_large_value_streams_and_costs_linear_time() -> None:
    value = "x = 1  # </parameter> <tool_call>\n" * 6000
    pieces = [value[i : i + 8] for i in range(0, len(value), 8)]
    head, tail = xml("edit", ("text", "@")).split("@")
    events = parse([head, *pieces, tail], "qwen")
    assert short(events) == [call("edit", text=value)]


@pytest.mark.parametrize(
    "hostile",
    ["<tool_call>\n<function=", "<", "<tool_call>", "</parameter>\n", "<tool_call>        ", " "],
)
def test_a_megabyte_of_near_markup_is_read(hostile: str) -> None:
    text = hostile * (1_000_000 // len(hostile)) + "."
    assert short(parse([text], "qwen")) == [("say", text)]
    inside = f"<tool_call>\n<function=edit>\n<parameter=text>\n{text}"
    assert short(parse([inside], "qwen")) == [call("edit", complete=False, text=text)]
