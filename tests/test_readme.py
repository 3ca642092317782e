"""The documents say what the code does: options, commands, the list of documents."""

import tomllib

import pytest

from tests.option_tables import DOCUMENTS, ROOT, refreshed, tables


@pytest.mark.parametrize("name", DOCUMENTS)
def test_every_option_is_documented_as_it_is(name: str) -> None:
    text = (ROOT / name).read_text(encoding="utf-8")
    assert "<!-- options ninfer-serve -->" in text
    assert text == refreshed(text), "run `make docs`"


def test_the_options_page_has_every_command_that_takes_options() -> None:
    text = (ROOT / "docs/options.md").read_text(encoding="utf-8")
    assert [name for name in tables() if f"<!-- options {name} -->" not in text] == []


def test_the_options_page_names_every_command() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    text = (ROOT / "docs/options.md").read_text(encoding="utf-8")
    assert [name for name in project["scripts"] if f"`{name}" not in text] == []


def test_the_readme_links_every_document() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    documents = [path.name for path in (ROOT / "docs").glob("*.md")]
    assert [name for name in documents if f"(docs/{name})" not in text] == []
