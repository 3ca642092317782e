"""Every way to ask for structured output, and what is wrong with it said by name."""

from typing import Any

import pytest

from tests.gateway.conftest import Serve
from tests.scripted_engine import say

SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}}
GOOD: list[dict[str, Any]] = [
    {"response_format": {"type": "json_object"}},
    {"response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": SCHEMA}}},
    {"structured_outputs": {"json": SCHEMA}},
    {"structured_outputs": {"json_object": True}},
    {"structured_outputs": {"regex": "[0-9]+"}},
    {"structured_outputs": {"choice": ["yes", "no"]}},
    {"structured_outputs": {"grammar": 'start: "a" | "b"'}},
    {"guided_json": SCHEMA},
    {"guided_json": {"$ref": "#/$defs/a", "$defs": {"a": {"anyOf": [{"type": "null"}, SCHEMA]}}}},
    {"guided_regex": "a|b"},
    {"guided_choice": ["a"]},
    {"guided_grammar": "start: /x+/"},
]
BAD: list[tuple[dict[str, Any], str]] = [
    ({"response_format": {"type": "yaml"}}, "response_format.type"),
    ({"response_format": {"type": "json_schema"}}, "response_format.json_schema.schema"),
    (
        {"response_format": {"type": "json_schema", "json_schema": {"schema": {"type": "no"}}}},
        "response_format.json_schema.schema",
    ),
    ({"structured_outputs": {"regex": "("}}, "structured_outputs.regex"),
    ({"structured_outputs": {"choice": []}}, "structured_outputs.choice"),
    ({"structured_outputs": {"xml": "a"}}, "structured_outputs"),
    ({"guided_json": {"$ref": "#"}}, "guided_json"),
    (
        {
            "guided_json": {
                "$ref": "#/$defs/a",
                "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}},
            }
        },
        "guided_json",
    ),
    ({"guided_grammar": "begin: nowhere"}, "guided_grammar"),
    ({"guided_regex": "a", "response_format": {"type": "json_object"}}, "guided_regex"),
    ({"grammar": "root ::= [a]"}, "grammar"),
]


@pytest.mark.parametrize("fields", GOOD)
async def test_a_grammar_reaches_the_engine(serve: Serve, fields: dict[str, Any]) -> None:
    async with serve(say([])) as served:
        status, body = await served.chat(**fields)
        assert status == 200, body
        (asked,) = served.engine.generates
        assert asked.grammar is not None
        assert asked.grammar.after_id is None


@pytest.mark.parametrize(("fields", "param"), BAD)
async def test_what_cannot_be_held_to_is_refused(
    serve: Serve, fields: dict[str, Any], param: str
) -> None:
    async with serve(say([])) as served:
        status, body = await served.chat(**fields)
        assert (status, body["error"]["param"]) == (400, param)
        assert not served.engine.generates
