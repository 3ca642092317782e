"""The grammar of an answer that must be tool calls, in the form that the model's template uses."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from services.gateway import grammars
from services.gateway.output.choice import ToolParser
from services.gateway.output.schema import Tools
from shared.errors import BadParameter

CALL, CALL_END = "<tool_call>", "</tool_call>"
NO_PARAMETERS: dict[str, Any] = {
    "type": "object",
    "properties": {},
    "additionalProperties": False,
}


@dataclass(frozen=True)
class ForcedCalls:
    """What `tool_choice` asks for."""

    param: str  # the field that asks
    name: str | None = None  # of the one tool that may be called; None: any
    single: bool = False  # one call, and no more


def grammar_of(
    forced: ForcedCalls,
    tools: Sequence[Mapping[str, Any]],
    form: ToolParser,
    is_token: Callable[[str], bool],
) -> str:
    """As llguidance serialises it. `is_token` tells which of the marks are tokens by themselves.

    Raises:
        BadParameter: no such tool, no form of calls, or a schema that cannot be held to.
    """
    param = forced.param
    functions = [tool["function"] for tool in tools]
    allowed = [f for f in functions if forced.name in (None, f["name"])]
    if not allowed:
        name = f"tool '{forced.name}' in tools" if forced.name else "tool to call"
        raise BadParameter(f"there is no {name}", param=param)
    if form == "none":
        raise BadParameter("this model's template has no form of tool calls", param=param)
    body = _hermes if form == "hermes" else _qwen
    rules = [rule for i, f in enumerate(allowed) for rule in body(i, f, Tools(tools))]
    begin, end = (_mark(mark, is_token) for mark in (CALL, CALL_END))
    more = "" if forced.single or forced.name else " (/[ \\n]{0,2}/ call)*"
    lines = [
        f"start: /[ \\n]{{0,4}}/ call{more}",
        f'call: {begin} "\\n" ({" | ".join(f"f{i}" for i in range(len(allowed)))}) "\\n" {end}',
        # ends at the first closing mark on a line of its own
        's[suffix="\\n</parameter>\\n"]: /(.|\\n)*/',
        *rules,
    ]
    return grammars.lark("\n".join(lines), param)


def _hermes(i: int, function: Mapping[str, Any], _: Tools) -> list[str]:
    opening = f'{{"name": {json.dumps(function["name"])}, "arguments": '
    layout = {"x-guidance": dict(grammars.JSON_LAYOUT)}
    schema = json.dumps({"type": "object", **layout, **_schema_of(function)})
    return [f'f{i}: {json.dumps(opening)} a{i} "}}"', f"a{i}: %json {schema}"]


def _qwen(i: int, function: Mapping[str, Any], tools: Tools) -> list[str]:
    """Parameters in the order of the schema; those that it does not require may be absent."""
    schema = _schema_of(function)
    given = schema.get("properties")
    properties: dict[str, Any] = given if isinstance(given, dict) else {}
    required = schema.get("required")
    parts, rules = [], []
    for j, name in enumerate(properties):
        rule = f"p{i}_{j}"
        is_required = isinstance(required, list) and name in required
        parts.append(rule if is_required else f"{rule}?")
        value = _value(schema, properties[name], tools.kind(function["name"], name))
        rules.append(f"{rule}: {json.dumps(f'<parameter={name}>' + chr(10))} {value}")
    opening = json.dumps(f"<function={function['name']}>\n")
    return [f'f{i}: {opening} {" ".join(parts)} "</function>"', *rules]


def _value(root: Mapping[str, Any], schema: Any, kind: str) -> str:
    """A value with its closing mark: text as it stands, or JSON."""
    close = '"\\n</parameter>\\n"'
    values = schema.get("enum") if isinstance(schema, dict) else None
    if kind == "string" and isinstance(values, list) and values:
        return f"({' | '.join(json.dumps(str(value)) for value in values)}) {close}"
    if kind != "parsed":
        return "s"
    shared = {name: root[name] for name in ("$defs", "definitions") if name in root}
    return f"%json {json.dumps({**shared, **schema})} {close}"


def _schema_of(function: Mapping[str, Any]) -> dict[str, Any]:
    schema = function.get("parameters")
    return schema if isinstance(schema, dict) else NO_PARAMETERS


def _mark(mark: str, is_token: Callable[[str], bool]) -> str:
    """llguidance takes an added token for special, without a text, whatever the tokenizer says."""
    text = json.dumps(mark)
    return f"({mark} | {text})" if is_token(mark) else text
