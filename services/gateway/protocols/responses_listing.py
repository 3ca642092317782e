"""Items of a stored conversation as the API lists them: whole, in whatever short form they came."""

from typing import Any

STATUS = {"status": "completed"}
INPUT_PARTS = ("input_text", "text", "output_text")


def listed(item: dict[str, Any]) -> dict[str, Any]:
    kind = item.get("type") or "message"
    match kind:
        case "message":
            content = _parts(item.get("content"), is_output=item.get("role") == "assistant")
            return {**STATUS, **item, "type": kind, "content": content}
        case "reasoning":
            return {"summary": [], **item}
        case "function_call":
            return {**STATUS, "call_id": item["id"], "arguments": "", **item}
        case "custom_tool_call":
            return {**STATUS, "call_id": item["id"], "input": "", **item}
        case _ if kind.endswith("_output"):
            output = item.get("output")
            shown = _parts(output, is_output=False) if isinstance(output, list) else output or ""
            return {**STATUS, **item, "output": shown}
        case _:
            return {**STATUS, **item}


def _parts(content: Any, *, is_output: bool) -> list[Any]:
    """A text is a list of one part."""
    if not isinstance(content, list):
        content = [{"type": "text", "text": content or ""}]
    return [_part(part, is_output=is_output) for part in content]


def _part(part: Any, *, is_output: bool) -> Any:
    if not isinstance(part, dict) or part.get("type") not in INPUT_PARTS:
        return part
    if is_output:
        return {"annotations": [], "logprobs": [], **part, "type": "output_text"}
    return {**part, "type": "input_text"}
