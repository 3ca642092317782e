"""From what a client wants the output to look like to a grammar, by the llguidance library."""

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from llguidance import LLMatcher

from shared.errors import BadParameter

if TYPE_CHECKING:
    from llguidance._lib import JsonCompileOptions

# One blank, or a new line with its indentation: weak models lose themselves in more.
JSON_LAYOUT: "JsonCompileOptions" = {
    "whitespace_flexible": True,
    "whitespace_pattern": r"(\n {0,40}| )?",
}
MAX_GRAMMAR_CHARACTERS = 1 << 18
REFUSED = "the grammar library refuses this schema or grammar"


def json_object() -> str:
    return json_schema({"type": "object"}, "response_format")


def json_schema(schema: Any, param: str) -> str:
    """Raises BadParameter: no JSON schema, or one that the library cannot hold the output to."""
    if not isinstance(schema, dict):
        raise BadParameter(f"{param} must be a JSON schema", param=param)
    _bound(json.dumps(schema), param)
    if _is_only_itself(schema):
        raise BadParameter(f"{param}: the schema refers to itself alone", param=param)
    try:
        grammar: str = LLMatcher.grammar_from_json_schema(schema, defaults=JSON_LAYOUT)
    except ValueError as exc:
        raise BadParameter(f"{param}: {exc}", param=param, logged=REFUSED) from exc
    return _checked(grammar, param)


def regex(pattern: str, param: str) -> str:
    """The whole output must match. Raises BadParameter."""
    return _checked(LLMatcher.grammar_from_regex(_bound(pattern, param)), param)


def lark(grammar: str, param: str) -> str:
    """In llguidance's Lark dialect. Raises BadParameter."""
    return _checked(LLMatcher.grammar_from_lark(_bound(grammar, param)), param)


def choice(options: Sequence[str], param: str) -> str:
    """One of the texts, exactly. Raises BadParameter."""
    if not options or not all(options):
        raise BadParameter(f"{param} needs texts to choose from", param=param)
    alternatives = " | ".join(json.dumps(option) for option in options)
    return lark(f"start: {alternatives}", param)


def _bound(text: str, param: str) -> str:
    if len(text) > MAX_GRAMMAR_CHARACTERS:
        raise BadParameter(
            f"{param} is longer than {MAX_GRAMMAR_CHARACTERS} characters", param=param
        )
    return text


def _is_only_itself(schema: dict[str, Any]) -> bool:
    """References that lead back to themselves hold no value; the library would end at once."""
    seen = set()
    at: Any = schema
    while isinstance(at, dict) and isinstance(pointer := at.get("$ref"), str):
        if pointer in seen or pointer == "#":
            return True
        seen.add(pointer)
        at = schema
        for part in pointer.removeprefix("#/").split("/"):
            at = (
                at.get(part.replace("~1", "/").replace("~0", "~")) if isinstance(at, dict) else None
            )
    return False


def _checked(grammar: str, param: str) -> str:
    problem: str = LLMatcher.validate_grammar(grammar, None)
    if problem:
        raise BadParameter(f"{param}: {problem.strip()}", param=param, logged=REFUSED)
    return grammar
