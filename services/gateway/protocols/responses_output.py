"""The items of one response's output, as they grow: each with its events and its final form."""

import json
import secrets
from typing import Any

from services.gateway.protocols.responses_tools import INPUT, Tool


class ReasoningItem:
    def __init__(self) -> None:
        self.id = f"rs_{secrets.token_hex(12)}"
        self._text: list[str] = []

    def begun(self) -> list[dict[str, Any]]:
        return []

    def add(self, text: str) -> list[dict[str, Any]]:
        self._text.append(text)
        return [{"type": "response.reasoning_text.delta", "content_index": 0, "delta": text}]

    def ended(self, *, complete: bool) -> list[dict[str, Any]]:
        text = "".join(self._text)
        return [{"type": "response.reasoning_text.done", "content_index": 0, "text": text}]

    def shown(self, status: str) -> dict[str, Any]:
        text = "".join(self._text)
        content = [{"type": "reasoning_text", "text": text}] if status != "in_progress" else []
        return {
            "id": self.id,
            "type": "reasoning",
            "summary": [],
            "content": content,
            "encrypted_content": None,
            "status": status,
        }


class MessageItem:
    def __init__(self) -> None:
        self.id = f"msg_{secrets.token_hex(12)}"
        self._text: list[str] = []

    def begun(self) -> list[dict[str, Any]]:
        return [{"type": "response.content_part.added", "content_index": 0, "part": _part("")}]

    def add(self, text: str) -> list[dict[str, Any]]:
        self._text.append(text)
        delta = {"content_index": 0, "delta": text, "logprobs": []}
        return [{"type": "response.output_text.delta", **delta}]

    def ended(self, *, complete: bool) -> list[dict[str, Any]]:
        text = "".join(self._text)
        done = {"content_index": 0, "text": text, "logprobs": []}
        part = {"content_index": 0, "part": _part(text)}
        return [
            {"type": "response.output_text.done", **done},
            {"type": "response.content_part.done", **part},
        ]

    def shown(self, status: str) -> dict[str, Any]:
        content = [_part("".join(self._text))] if status != "in_progress" else []
        return {
            "id": self.id,
            "type": "message",
            "status": status,
            "role": "assistant",
            "content": content,
        }


class FunctionCallItem:
    def __init__(self, key: str, tool: Tool) -> None:
        self.id = f"fc_{key}"
        self._call_id = f"call_{key}"
        self._tool = tool
        self._arguments: list[str] = []

    def begun(self) -> list[dict[str, Any]]:
        return []

    def add(self, text: str) -> list[dict[str, Any]]:
        self._arguments.append(text)
        return [{"type": "response.function_call_arguments.delta", "delta": text}]

    def ended(self, *, complete: bool) -> list[dict[str, Any]]:
        fields = {"name": self._tool.name, "arguments": "".join(self._arguments)}
        return [{"type": "response.function_call_arguments.done", **fields}]

    def shown(self, status: str) -> dict[str, Any]:
        item = {
            "id": self.id,
            "type": "function_call",
            "status": status,
            "call_id": self._call_id,
            "name": self._tool.name,
            "arguments": "".join(self._arguments),
        }
        if self._tool.namespace is not None:
            item["namespace"] = self._tool.namespace
        return item


class CustomCallItem:
    """A call of a tool that takes free text, which is one of the model's arguments."""

    def __init__(self, key: str, tool: Tool) -> None:
        self.id = f"ctc_{key}"
        self._call_id = f"call_{key}"
        self._tool = tool
        self._arguments: list[str] = []
        self._input = ""

    def begun(self) -> list[dict[str, Any]]:
        return []

    def add(self, text: str) -> list[dict[str, Any]]:
        self._arguments.append(text)
        return []  # the text is inside JSON, so it is known when that is whole

    def ended(self, *, complete: bool) -> list[dict[str, Any]]:
        value = json.loads("".join(self._arguments)).get(INPUT, "")
        self._input = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        return [
            {"type": "response.custom_tool_call_input.delta", "delta": self._input},
            {"type": "response.custom_tool_call_input.done", "input": self._input},
        ]

    def shown(self, status: str) -> dict[str, Any]:
        item = {
            "id": self.id,
            "type": "custom_tool_call",
            "status": status,
            "call_id": self._call_id,
            "name": self._tool.name,
            "input": self._input,
        }
        if self._tool.namespace is not None:
            item["namespace"] = self._tool.namespace
        return item


OutputItem = ReasoningItem | MessageItem | FunctionCallItem | CustomCallItem


def _part(text: str) -> dict[str, Any]:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
