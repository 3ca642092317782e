"""De-numbering: the line grammar and its runs."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.matching.derived import derived_sources

SEPARATORS = [": ", "\t", "→", " | ", "| "]


def sources(text: str) -> list[str]:
    return list(derived_sources(text))


def numbered(lines: list[str], separator: str, *, first: int = 1, prefix: str = "") -> str:
    return "\n".join(f"{prefix}{n}{separator}{body}" for n, body in enumerate(lines, first))


@pytest.mark.parametrize("separator", SEPARATORS)
@pytest.mark.parametrize("prefix", ["", "   ", "L", "  L"])
def test_each_separator_is_stripped_with_spaces_and_an_l_before_the_number(
    separator: str, prefix: str
) -> None:
    lines = ["def f():", "    return 1", "", "\tx"]
    assert sources(numbered(lines, separator, prefix=prefix)) == ["\n".join(lines)]


@pytest.mark.parametrize("separator", SEPARATORS)
def test_exactly_one_separator_is_stripped(separator: str) -> None:
    lines = [f"{separator}a", f"  {separator}", "b: c | d → e\t"]
    assert sources(numbered(lines, separator)) == ["\n".join(lines)]


@given(
    st.lists(st.text(st.characters(exclude_characters="\n", codec="utf-8")), min_size=3),
    st.sampled_from(SEPARATORS),
    st.integers(0, 2**60),
    st.booleans(),
)
def test_any_text_comes_back_byte_for_byte(
    lines: list[str], separator: str, first: int, final_newline: bool
) -> None:
    end = "\n" if final_newline else ""
    # A cut mark ends a source by design; these bodies must be whole.
    whole = [line for line in lines if "..." not in line and "[" not in line] + ["x", "y", "z"]
    assert sources(numbered(whole, separator, first=first) + end) == ["\n".join(whole) + end]


def test_a_final_newline_is_kept_only_if_there() -> None:
    assert sources("1: a\n2: b\n3: c\n") == ["a\nb\nc\n"]
    assert sources("1: a\n2: b\n3: c") == ["a\nb\nc"]


def test_a_carriage_return_belongs_to_the_body() -> None:
    assert sources("L1: a\r\nL2: \r\nL3: b\r\n") == ["a\r\n\r\nb\r\n"]


def test_other_line_separators_do_not_end_a_line() -> None:
    text = "1: a\u2028b\x0bc\x85d\n2: e\rf\n3: \x00g"
    assert sources(text) == ["a\u2028b\x0bc\x85d\ne\rf\n\x00g"]


def test_unicode_is_not_normalised() -> None:
    assert sources("1\te\u0301\n2\té\n3\t文") == ["e\u0301\né\n文"]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "plain text\nwithout numbers\nat all",
        "1: a\n2: b",
        "1: a\n2: b\n4: c",
        "L1: a\nL2: b\nL4: c",
        "1: a\n2\tb\n3→c",
        "1:\n2:\n3:\n",
        "1:a\n2:b\n3:c",
        "1. a\n2. b\n3. c",
        "1) a\n2) b\n3) c",
        "LL1: a\nLL2: b\nLL3: c",
        "L 1: a\nL 2: b\nL 3: c",
        "\t1: a\n\t2: b\n\t3: c",
        "3: a\n2: b\n1: c",
        "1: a\n1: b\n1: c",
        "١: a\n٢: b\n٣: c",
    ],
)
def test_what_is_no_listing_gives_no_source(text: str) -> None:
    assert sources(text) == []


def test_a_gap_separates_two_sources() -> None:
    assert sources(f"{numbered(list('abc'), ': ')}\n{numbered(list('xyz'), ': ', first=9)}") == [
        "a\nb\nc\n",
        "x\ny\nz",
    ]


def test_another_separator_separates_two_sources() -> None:
    text = f"{numbered(list('abc'), ': ')}\n{numbered(list('xyz'), '→', first=4)}"
    assert sources(text) == ["a\nb\nc\n", "x\ny\nz"]


def test_a_line_that_is_not_numbered_separates_two_sources() -> None:
    text = f"{numbered(list('abc'), ': ')}\n\n{numbered(list('xyz'), ': ', first=4)}"
    assert sources(text) == ["a\nb\nc\n", "x\ny\nz"]


def test_numbers_are_uint64() -> None:
    top = 2**64 - 1
    assert sources(numbered(list("abc"), ": ", first=top - 2)) == ["a\nb\nc"]
    assert sources(numbered(list("abc"), ": ", first=top - 1)) == []
    assert sources(f"{top - 1}: a\n{top}: b\n0: c") == []


def test_a_number_of_a_million_digits_is_no_number() -> None:
    assert sources("\n".join("9" * 1_000_000 + f"{n}: x" for n in range(3))) == []


def test_zero_padded_numbers_count() -> None:
    text = "\n".join(f"{n:05d}| {body}" for n, body in enumerate("abc", 8))
    assert sources(text) == ["a\nb\nc"]


def test_a_bar_without_spaces_keeps_indentation() -> None:
    text = "     1|def f():\n     2|    return 1\n     3|"
    assert sources(text) == ["def f():\n    return 1\n"]


def test_a_bar_whose_trailing_space_was_trimmed_is_an_empty_line() -> None:
    assert sources(" 8 | a\n 9 |\n10 |   b") == ["a\n\n  b"]


def test_a_lost_left_pad_on_the_first_line_does_not_matter() -> None:
    assert sources("1\ta\n     2\tb\n     3\tc") == ["a\nb\nc"]


@pytest.mark.parametrize("separator", [": ", "\t", " | ", "| "])
def test_a_last_separator_that_was_trimmed_is_an_empty_last_line(separator: str) -> None:
    assert sources(numbered(["a", "b", "c", ""], separator).rstrip()) == ["a\nb\nc\n"]


def test_a_bare_number_inside_a_text_is_no_line() -> None:
    assert sources("1\ta\n2\n3\tb") == []


def test_old_and_new_lines_of_an_edit_echo_stay_apart() -> None:
    text = "-2: a\n-3: b\n-4: c\n+2: x\n+3: y\n+4: z"
    assert sources(text) == ["a\nb\nc\n", "x\ny\nz"]


def test_a_marked_hit_belongs_to_its_context() -> None:
    assert sources("  1: a\n> 2: b\n  3: c") == ["a\nb\nc"]


def test_grep_lines_may_skip_numbers() -> None:
    assert sources("a.py:2:x\na.py-3-\ty\na.py:9:z") == ["x\n\ty\nz"]


def test_grep_lines_of_another_file_are_another_source() -> None:
    text = "\n".join(f"{path}:{n}:{path}{n}" for path in ("a.c", "b.c") for n in (1, 2, 3))
    assert sources(text) == ["a.c1\na.c2\na.c3\n", "b.c1\nb.c2\nb.c3"]


def test_grep_paths_may_be_relative_on_one_line_and_absolute_on_the_next() -> None:
    assert sources("src/a.py:1:x\n/w/src/a.py-2-y\nsrc/a.py-3-z") == ["x\ny\nz"]


def test_grep_paths_may_hold_numbers_and_dashes() -> None:
    text = "2024-01-02-log.md:5:a\n2024-01-02-log.md-6-b\n2024-01-02-log.md:7:c"
    assert sources(text) == ["a\nb\nc"]


def test_times_are_no_grep_lines() -> None:
    assert sources("10:20:30 a\n10:21:30 b\n10:22:30 c") == []


@pytest.mark.parametrize(
    "mark",
    [
        "... (line truncated to 2000 chars)",
        " [line truncated]",
        "... [truncated]",
        "...[truncated]",
    ],
)
def test_a_cut_line_ends_a_source_where_it_was_cut(mark: str) -> None:
    assert sources(numbered(["a", f"long{mark}", "b", "c"], ": ")) == ["a\nlong", "b\nc"]


def test_a_long_line_that_ends_in_dots_was_cut() -> None:
    long = "x" * 2000
    assert sources(numbered(["a", "b", f"{long}...", "c"], "→")) == [f"a\nb\n{long}", "c"]


def test_a_short_line_that_ends_in_dots_is_code() -> None:
    assert sources(numbered(["def f():", "    ...", "x"], ": ")) == ["def f():\n    ...\nx"]


def test_json_wrapped_results_are_unescaped_first() -> None:
    wrapped = json.dumps([{"query": "a", "result": '1 | "x"\n2 | \\\n3 | é', "success": True}])
    assert sources(wrapped) == ['"x"\n\\\né']


def test_each_file_of_a_json_result_is_a_source_of_its_own() -> None:
    results = [{"result": numbered(list(file), " | ")} for file in ("abc", "xyz")]
    assert sources(json.dumps(results)) == ["a\nb\nc", "x\ny\nz"]


def test_json_text_parts_are_found_at_any_depth() -> None:
    document = {"content": [{"type": "text", "text": "1: a\n2: b\n3: c"}], "meta": {"output": "x"}}
    assert sources(json.dumps(document)) == ["a\nb\nc"]


def test_text_that_only_looks_like_json_is_taken_as_it_is() -> None:
    assert sources("[note]\n1: a\n2: b\n3: c") == ["a\nb\nc"]


@pytest.mark.parametrize(
    "hostile",
    [
        "[" * 1_000_000,
        '{"a":' * 200_000,
        "\n" * 300_000,
        " " * 1_000_000,
        "a:1" * 300_000,
        "a-1-" * 250_000,
        "L" * 1_000_000,
        "> " * 500_000,
        "1\t" + "." * 1_000_000,
        "... (line truncated" * 50_000,
    ],
    ids=lambda text: repr(text[:8]),
)
def test_a_hostile_megabyte_ends_without_a_source(hostile: str) -> None:
    assert sources(hostile) == []


def test_sources_are_found_one_by_one() -> None:
    text = f"{numbered(list('abc'), ': ')}\n--\n" * 3
    found = derived_sources(text)
    assert next(found) == "a\nb\nc\n"
    assert len(list(found)) == 2
