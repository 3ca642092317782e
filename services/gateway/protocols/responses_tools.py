"""The tools of a Responses request: what the model sees of them, and under which names."""

from dataclasses import dataclass, field
from typing import Any

from services.gateway.depth import check_depth
from shared.errors import BadParameter

INPUT = "input"  # the one parameter in which a custom tool's text stands


@dataclass(frozen=True)
class Tool:
    name: str
    namespace: str | None
    is_custom: bool  # takes free text instead of arguments


@dataclass
class ToolSet:
    """Functions and custom tools, those in namespaces too. What only OpenAI's servers run is left
    out: agents list such tools whether or not a server has them."""

    shown: list[dict[str, Any]] = field(default_factory=list)  # as templates take them
    by_shown_name: dict[str, Tool] = field(default_factory=dict)
    _shown_names: dict[tuple[str | None, str], str] = field(default_factory=dict)

    @classmethod
    def read(cls, tools: list[dict[str, Any]]) -> "ToolSet":
        """Raises BadParameter: a tool without a name."""
        found = cls()
        for index, tool in enumerate(tools):
            where = f"tools[{index}]"
            check_depth(tool, where, where)
            if tool.get("type") == "namespace":
                inner = tool.get("tools")
                for nested in inner if isinstance(inner, list) else ():
                    if isinstance(nested, dict):
                        found._add(nested, where, str(tool.get("name") or ""))
            else:
                found._add(tool, where, None)
        return found

    def shown_name(self, namespace: str | None, name: str) -> str:
        """What the model calls a tool that stands in the history."""
        return self._shown_names.get((namespace, name), name)

    def _add(self, tool: dict[str, Any], where: str, namespace: str | None) -> None:
        kind = tool.get("type", "function")
        if kind not in ("function", "custom"):
            return
        name = tool.get("name")
        if not isinstance(name, str) or not name:
            raise BadParameter("a tool needs a name", param=f"{where}.name")
        shown = f"{namespace}__{name}" if name in self.by_shown_name and namespace else name
        if shown in self.by_shown_name:
            return  # the first of two with one name counts
        self.by_shown_name[shown] = Tool(name, namespace, kind == "custom")
        self._shown_names[namespace, name] = shown
        description = tool.get("description") or ""
        parameters = tool.get("parameters") or {"type": "object", "properties": {}}
        if kind == "custom":
            description, parameters = _as_function(description, tool.get("format"))
        function = {"name": shown, "description": description, "parameters": parameters}
        self.shown.append({"type": "function", "function": function})


def _as_function(description: str, form: Any) -> tuple[str, dict[str, Any]]:
    """A custom tool as a function of one text; its grammar is told, not enforced."""
    if isinstance(form, dict) and isinstance(form.get("definition"), str):
        grammar = f"{form.get('syntax') or ''} grammar".strip()
        description += f"\n\nThe input follows this {grammar}:\n{form['definition']}"
    properties = {INPUT: {"type": "string"}}
    return description, {"type": "object", "properties": properties, "required": [INPUT]}
