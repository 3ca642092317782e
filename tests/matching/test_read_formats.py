"""The read formats of real agents, each with every kind of file."""

import json
from collections.abc import Callable

import pytest

from shared.matching.derived import derived_sources

FILES = {
    "code": "def f(x):\n\treturn x + 1\n\n\nclass A:\n",
    "no final newline": "a\n\tb\nc",
    "separators": "a → b | c: d\n1: x\n2\ty\n| z\n",
    "crlf": "a\r\n\r\nb\r\n",
    "non-ascii": "é\n文字\n🙂 x\n",
    "long line": "a\n" + "x" * 5000 + "\nb\n",
}
Reader = Callable[[str, int], str]


def lines_of(text: str, *, extra_last: bool) -> list[str]:
    """A file's lines; some readers show what follows the final newline as an empty line."""
    lines = text.split("\n")
    return lines if extra_last or lines[-1] else lines[:-1]


def listing(text: str, first: int, form: str, *, extra_last: bool = False, pad: int = 0) -> str:
    lines = lines_of(text, extra_last=extra_last)
    return "\n".join(form.format(n=n, pad=pad) + line for n, line in enumerate(lines, first))


def claude_code(text: str, first: int) -> str:
    return listing(text, first, "{n}\t", extra_last=True)


def older_claude_code(text: str, first: int) -> str:
    shown = listing(text, first, "{n:6d}→")
    return f"{shown}\n\n<system-reminder>\nNo malware.\n</system-reminder>\n"


def opencode(text: str, first: int) -> str:
    body = listing(text, first, "{n}: ")
    end = "\n\n(End of file - total 124 lines)\n</content>"
    return f"<path>P</path>\n<type>file</type>\n<content>\n{body}{end}"


def opencode_partial(text: str, first: int) -> str:
    more = "(Showing lines 1-2000 of 3000. Use offset=2001 to continue.)"
    return f"<content>\n{listing(text, first, '{n}: ')}\n\n{more}\n</content>"


def older_opencode(text: str, first: int) -> str:
    body = listing(text, first, "{n:05d}| ")
    return f"<file>\n{body}\n\n(End of file - total 9 lines)\n</file>"


def older_opencode_variant(text: str, first: int) -> str:
    return f"<file>\n{listing(text, first, '{n:05d} |')}\n\n(End of file)\n</file>"


def cline(text: str, first: int) -> str:
    pad = len(str(first + text.count("\n")))
    body = listing(text, first, "{n:{pad}d} | ", pad=pad)
    more = "\n\n[Showing lines 1-2000 of 3000. Use start_line/end_line to read other sections.]"
    return json.dumps([{"query": "a.py", "result": body + more, "success": True}])


def roo(text: str, first: int) -> str:
    pad = len(str(first + text.count("\n")))
    body = listing(text, first, "{n:{pad}d} | ", pad=pad)
    return f"File: a.py\nLines 1-9:\n{body}\n\nIncluded ranges: 1-9 (total: 9 lines)"


def cat_n(text: str, first: int) -> str:
    return "Here's the result of running `cat -n` on a.py:\n" + listing(text, first, "{n:6d}\t")


def codex_nl(text: str, first: int) -> str:
    head = "Chunk ID: x\nWall time: 0.0000 seconds\nProcess exited with code 0\nOutput:\n"
    return f"{head}{listing(text, first, '{n:6d}' + chr(9))}\n"


def codex_shell_json(text: str, first: int) -> str:
    output = listing(text, first, "{n:6d}\t")
    return json.dumps({"output": output, "metadata": {"exit_code": 0}})


def older_codex(text: str, first: int) -> str:
    return listing(text, first, "L{n}: ")


def crush(text: str, first: int) -> str:
    return f"<file>\n{listing(text, first, '{n:6d}|')}\n</file>"


def grep(text: str, first: int) -> str:
    return listing(text, first, "src/a.py:{n}:")


def grep_context(text: str, first: int) -> str:
    return listing(text, first, "src/a.py-{n}-")


READERS = [
    claude_code,
    older_claude_code,
    opencode,
    opencode_partial,
    older_opencode,
    older_opencode_variant,
    cline,
    roo,
    cat_n,
    codex_nl,
    codex_shell_json,
    older_codex,
    crush,
    grep,
    grep_context,
]


@pytest.mark.parametrize("file", FILES)
@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("first", [1, 998], ids=["from 1", "from 998"])
def test_a_file_that_was_read_comes_back_as_it_is(reader: Reader, file: str, first: int) -> None:
    text = FILES[file]

    found = list(derived_sources(reader(text, first)))

    assert len(found) == 1
    # Readers that drop what follows the final newline, and show nothing after it, lose only that.
    assert found[0].removesuffix("\n") == text.removesuffix("\n")


@pytest.mark.parametrize("file", FILES)
def test_a_reader_that_shows_the_empty_last_line_loses_nothing(file: str) -> None:
    assert list(derived_sources(claude_code(FILES[file], 1))) == [FILES[file]]


@pytest.mark.parametrize("reader", [claude_code, cat_n, older_claude_code])
def test_a_listing_that_a_template_trimmed_comes_back_as_it_is(reader: Reader) -> None:
    found = list(derived_sources(reader(FILES["code"], 1).strip()))
    assert [source.removesuffix("\n") for source in found] == [FILES["code"].removesuffix("\n")]


@pytest.mark.parametrize("reader", READERS)
def test_an_empty_file_gives_no_source(reader: Reader) -> None:
    assert list(derived_sources(reader("", 1))) == []


def test_gemini_grep_context_lines_join_their_hits() -> None:
    text = "File: a.py\nL1- import os\nL2: def f():\nL3-     return 1\n---"
    assert list(derived_sources(text)) == ["import os\ndef f():\n    return 1\n"]


def test_cline_search_results_give_the_lines_around_the_hit() -> None:
    result = "a.py:2:2\n  1: import os\n> 2: def f():\n  3:     return 1"
    wrapped = json.dumps([{"query": "f", "result": result, "success": True}])
    assert list(derived_sources(wrapped)) == ["import os\ndef f():\n    return 1"]


@pytest.mark.parametrize(
    "text",
    [
        "File does not exist. Note: your current working directory is /w",
        "<path>P</path>\n<type>directory</type>\n<entries>\na\nb\n\n(7 entries)\n</entries>",
        "<content>\n\n(End of file - total 0 lines)\n</content>",
        "The file a.py has been updated successfully.",
        "Showing lines 998-1002 of 3001 total lines.\n\n---\n\nx\ny\nz",
        "Content of a.py:\nx\ny\nz",
    ],
)
def test_results_without_numbers_give_no_source(text: str) -> None:
    assert list(derived_sources(text)) == []
