"""Beginnings of questions: plain forms, and in them what Python's documentation speaks of.

A model that is asked to begin a conversation itself asks for advice. "Explain what a" and a noun of
some docstring lead it elsewhere; it goes on from there as it likes.
"""

import ast
import re
import sysconfig
from collections.abc import Iterator
from pathlib import Path

FORMS = (
    "What is {}",
    "What is the difference between {}",
    "What is the purpose of {}",
    "Why is {}",
    "Why does {}",
    "How does {}",
    "How do I make {}",
    "How do I use {}",
    "How do I choose {}",
    "How can I tell {}",
    "Explain {}",
    "Explain how {}",
    "Explain why {}",
    "Describe {}",
    "Tell me about {}",
    "Give me an example of {}",
    "Write {}",
    "Write a few sentences about {}",
    "Compare {}",
    "List the parts of {}",
)
NAMED = re.compile(r"\ban? [a-z]{3,}\b")
# another distribution may ship others in their place; "test" is a third of all files
LEFT_OUT = {"test", "tests", "idle_test", "site-packages", "dist-packages", "__pycache__"}


def beginnings(library: Path | None = None) -> list[str]:
    """Every form with everything that is named, in a fixed order: tens of thousands.

    `library` is a folder of Python modules; by default, this Python's standard library.
    """
    library = library or Path(sysconfig.get_paths()["stdlib"])
    things = sorted(set(named(library)))
    return [form.format(thing) for form in FORMS for thing in things]


def named(library: Path) -> Iterator[str]:
    """What the docstrings of all modules speak of: "a calendar". Files are read and not run."""
    for file in sorted(library.rglob("*.py")):
        if LEFT_OUT.intersection(file.relative_to(library).parts):
            continue
        try:
            module = ast.parse(file.read_bytes())
        except SyntaxError:  # kept for another version of the language
            continue
        for node in ast.walk(module):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                yield from NAMED.findall(ast.get_docstring(node) or "")
