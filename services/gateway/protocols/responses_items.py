"""The items of a Responses conversation, as turns."""

import json
from dataclasses import dataclass, field, replace
from typing import Any

from services.gateway.conversation import Call, Turn
from services.gateway.depth import check_depth
from services.gateway.protocols.decoding import convert
from services.gateway.protocols.responses_body import Item, Part, ReasoningPart
from services.gateway.protocols.responses_tools import INPUT, ToolSet
from services.gateway.protocols.unseen import unseen
from shared.errors import BadParameter

OUTPUTS = (
    "function_call_output",
    "custom_tool_call_output",
    "local_shell_call_output",
    "shell_call_output",
)
# What other servers' tools and compactions left in a history; this model cannot see it.
FOREIGN_PREFIXES = ("web_search", "tool_search", "file_search", "image_generation", "mcp_")
FOREIGN = ("code_interpreter_call", "computer_call", "compaction", "compaction_summary")


@dataclass
class Turns:
    """Reasoning, text and calls that follow each other become one assistant turn."""

    tools: ToolSet
    done: list[Turn] = field(default_factory=list)
    _open: Turn | None = None

    def add(self, given: dict[str, Any], where: str) -> None:
        """Raises BadParameter, which names the field."""
        kind = given.get("type", "message")
        if not isinstance(kind, str):
            raise BadParameter("an item's type is a string", param=f"{where}.type")
        if kind == "reasoning":
            self._think(_thought(given, where))
            return
        if kind in FOREIGN or kind.startswith(FOREIGN_PREFIXES):
            return
        item = convert(given, Item, where)
        match kind:
            case "message":
                self._message(item, where)
            case "function_call":
                name = self.tools.shown_name(item.namespace, item.name or "")
                self._call(item, name, item.arguments or "")
            case "custom_tool_call":
                name = self.tools.shown_name(item.namespace, item.name or "")
                self._call(item, name, {INPUT: item.input or ""})
            case "local_shell_call":
                check_depth(item.action, "an action", f"{where}.action")
                self._call(item, "local_shell", json.dumps(item.action or {}))
            case _ if kind in OUTPUTS:
                self._output(item, where)
            case _:
                raise BadParameter(f"'{kind}' items are not served", param=f"{where}.type")

    def finish(self) -> tuple[Turn, ...]:
        self._close()
        return tuple(self.done)

    def _message(self, item: Item, where: str) -> None:
        text = "".join(_parts(item.content, f"{where}.content"))
        match item.role:
            case "assistant":
                if self._open is None or self._open.text or self._open.calls:
                    self._close()
                    self._open = Turn("assistant", "")
                self._open = replace(self._open, text=text)
            case "user":
                self._push(Turn("user", text))
            case "system" | "developer":
                self._push(Turn("system", text))
            case _:
                raise BadParameter(f"unknown role '{item.role}'", param=f"{where}.role")

    def _think(self, text: str) -> None:
        if self._open is None or self._open.text or self._open.calls:
            self._close()
            self._open = Turn("assistant", "")
        self._open = replace(self._open, reasoning=self._open.reasoning + text)

    def _call(self, item: Item, name: str, arguments: str | dict[str, Any]) -> None:
        turn = self._open or Turn("assistant", "")
        call = Call(item.call_id or item.id or "", name, arguments)
        self._open = replace(turn, calls=(*turn.calls, call))

    def _output(self, item: Item, where: str) -> None:
        parts = _parts(item.output, f"{where}.output", in_result=True)
        kept = tuple(part for part in parts if part)
        self._push(Turn("tool", "".join(parts), call_id=item.call_id or item.id, parts=kept))

    def _push(self, turn: Turn) -> None:
        self._close()
        self.done.append(turn)

    def _close(self) -> None:
        if self._open is not None:
            self.done.append(self._open)
        self._open = None


def _thought(given: dict[str, Any], where: str) -> str:
    """The reasoning's own text; a summary says something else and is not replayed."""
    parts = given.get("content") or []
    found = convert(parts, list[ReasoningPart], f"{where}.content")
    return "".join(part.text for part in found if part.type == "reasoning_text")


def _parts(content: str | list[Part] | None, where: str, *, in_result: bool = False) -> list[str]:
    if content is None or isinstance(content, str):
        return [content or ""]
    texts = []
    for index, part in enumerate(content):
        if part.type == "refusal":
            texts.append(part.refusal or "")
        elif part.type in ("input_text", "output_text", "text") and part.text is not None:
            texts.append(part.text)
        elif in_result:
            texts.append(unseen(part.type, part.filename))
        else:
            raise BadParameter(
                f"only text parts are served, not '{part.type}'", param=f"{where}[{index}]"
            )
    return texts
