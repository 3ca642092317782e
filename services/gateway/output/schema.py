"""What the schema of a tool says about its parameters, as far as reading raw values needs it."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

# string    the text as it stands
# nullable  the text, or null
# parsed    JSON; the text if it is none
# open      JSON if it looks like an object or array, else the text
Kind = Literal["string", "nullable", "parsed", "open"]

MAX_REFERENCES = 8  # deep, against schemas that refer to themselves


class Tools:
    """The tools of one request, by name."""

    def __init__(self, tools: Sequence[Mapping[str, Any]]) -> None:
        self._schemas: dict[str, Any] = {}
        for tool in tools:
            function = tool.get("function", {})
            self._schemas[function["name"]] = function.get("parameters") or {}
        self.longest_name = max(map(len, self._schemas), default=0)

    def __bool__(self) -> bool:
        return bool(self._schemas)

    def __contains__(self, name: str) -> bool:
        return name in self._schemas

    def kind(self, tool: str, parameter: str) -> Kind:
        root = self._schemas.get(tool)
        properties = root.get("properties") if isinstance(root, dict) else None
        schema = properties.get(parameter) if isinstance(properties, dict) else None
        return _kind(_types(schema, root, MAX_REFERENCES))


def _kind(types: set[str]) -> Kind:
    if not types:
        return "open"
    if "string" not in types:
        return "parsed"
    if types & {"object", "array"}:
        return "open"
    return "nullable" if "null" in types else "string"


def _types(schema: Any, root: Any, depth: int) -> set[str]:
    """The JSON types that a schema admits; empty if it does not say."""
    if not isinstance(schema, dict) or depth == 0:
        return set()
    found: set[str] = set()
    own = schema.get("type")
    for name in own if isinstance(own, list) else [own]:
        if isinstance(name, str):
            found.add("number" if name == "integer" else name)
    for word in ("anyOf", "oneOf", "allOf"):
        for inner in _listed(schema, word):
            found |= _types(inner, root, depth - 1)
    if isinstance(schema.get("$ref"), str):
        found |= _types(_referred(schema["$ref"], root), root, depth - 1)
    if not found:
        values = [schema["const"]] if "const" in schema else _listed(schema, "enum")
        found |= {_type_of(value) for value in values}
    if not found and ("properties" in schema or "items" in schema):
        found.add("object" if "properties" in schema else "array")
    if schema.get("nullable") is True:
        found.add("null")
    return found


def _listed(schema: dict[str, Any], word: str) -> list[Any]:
    value = schema.get(word)
    return value if isinstance(value, list) else []


def _referred(reference: str, root: Any) -> Any:
    if not reference.startswith("#/"):
        return None
    found = root
    for name in reference[2:].split("/"):
        found = found.get(name) if isinstance(found, dict) else None
    return found


def _type_of(value: Any) -> str:
    match value:
        case str():
            return "string"
        case bool():
            return "boolean"
        case int() | float():
            return "number"
        case list():
            return "array"
        case dict():
            return "object"
        case _:
            return "null"
