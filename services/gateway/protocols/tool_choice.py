"""`tool_choice` of OpenAI's two protocols."""

from typing import Any

from services.gateway.forced_calls import ForcedCalls
from shared.errors import BadParameter

PARAM = "tool_choice"


def forced_calls(choice: str | dict[str, Any] | None, parallel: bool | None) -> ForcedCalls | None:
    """None: the model decides. Raises BadParameter."""
    if choice in (None, "auto", "none"):
        return None
    if choice == "required":
        return ForcedCalls(PARAM, single=parallel is False)
    if isinstance(choice, dict) and choice.get("type") in ("function", "custom"):
        # Chat has the name one level deeper
        inner = choice.get(choice["type"])
        name = (inner if isinstance(inner, dict) else choice).get("name")
        if isinstance(name, str):
            return ForcedCalls(PARAM, name)
    raise BadParameter("tool_choice may be auto, none, required or one named tool", param=PARAM)


def shown_choice(choice: str | dict[str, Any] | None) -> str | None:
    """For the log: no name of a tool."""
    return "named" if isinstance(choice, dict) else choice
