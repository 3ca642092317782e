"""What a Messages body means, and what of it this server cannot do."""

from typing import Any, NamedTuple

from services.gateway.conversation import Call, Conversation, Turn
from services.gateway.depth import check_depth
from services.gateway.effort import template_options
from services.gateway.forced_calls import ForcedCalls
from services.gateway.protocols.decoding import (
    check_stops,
    check_tool_name,
    convert,
    decode,
)
from services.gateway.protocols.decoding_fields import sampling_of, wishes_of
from services.gateway.protocols.messages_body import (
    Block,
    Message,
    MessagesBody,
    OpaqueBlock,
    Source,
    ToolChoice,
)
from services.gateway.protocols.structured import grammar_of_format
from services.gateway.protocols.unseen import unseen
from services.gateway.protocols.unserved import MESSAGES, Unserved
from services.gateway.rendering import reminder
from services.gateway.request import Request
from shared.errors import BadParameter

# Claude Code's first line of system text differs in every request, and all behind it would too.
BILLING = "x-anthropic-billing-header:"
# What other servers' tools left in a history; this model cannot see it.
FOREIGN = ("redacted_thinking", "server_tool_use", "mcp_tool_use", "mcp_tool_result", "compaction")
ERROR_WORDS = ("error", "<tool_use_error>")  # how a result that says so itself begins

_unserved = Unserved("messages", MESSAGES)


class PlacedBlock(NamedTuple):
    block: Block
    at: str  # where it stands in the body, for errors


def parse(raw: bytes) -> Request:
    """Raises BadParameter, which names the field."""
    body = decode(raw, MessagesBody)
    _unserved.refuse(raw)
    _check_choices(body)
    turns: list[Turn] = []
    if system := _system_of(body):
        turns.append(Turn("system", system))
    for index, message in enumerate(body.messages):
        turns += _turns(message, f"messages[{index}]")
    choice = body.tool_choice.type if body.tool_choice else None
    effort = body.output_config.effort if body.output_config else None
    thinks = body.thinking is not None and body.thinking.type != "disabled"
    budget = body.thinking.budget_tokens if body.thinking and thinks else None
    return Request(
        body=body,
        prompt=Conversation(tuple(turns), () if choice == "none" else _tools_of(body)),
        described=_describe(body, turns, choice),
        model=body.model,
        any_model=True,
        stream=bool(body.stream),
        max_tokens=body.max_tokens,
        sampling=sampling_of(body),
        seed=body.seed,
        stops=check_stops(tuple(body.stop_sequences or ()), "stop_sequences"),
        wishes=wishes_of(
            body,
            thinking_budget=budget,
            effort=effort,
            grammar=_grammar_of(body),
            forced_calls=_forced_calls(body.tool_choice),
        ),
        template_options={"enable_thinking": thinks} | template_options(effort),
        metadata=body.metadata,
    )


def _check_choices(body: MessagesBody) -> None:
    """Refuses what this server does otherwise. Raises BadParameter."""
    if body.thinking is not None and body.thinking.type not in ("enabled", "adaptive", "disabled"):
        raise BadParameter(
            "thinking.type may be enabled, adaptive or disabled", param="thinking.type"
        )


def _forced_calls(choice: ToolChoice | None) -> ForcedCalls | None:
    """None: the model decides. Raises BadParameter."""
    if choice is None or choice.type in ("auto", "none"):
        return None
    if choice.type == "any":
        return ForcedCalls("tool_choice", single=bool(choice.disable_parallel_tool_use))
    if choice.type != "tool":
        raise BadParameter(
            "tool_choice.type may be auto, any, tool or none", param="tool_choice.type"
        )
    if choice.name is None:
        raise BadParameter("tool_choice of a tool needs its name", param="tool_choice.name")
    return ForcedCalls("tool_choice", choice.name)


def _grammar_of(body: MessagesBody) -> str | None:
    """Raises BadParameter."""
    if body.output_config is not None and body.output_config.format is not None:
        return grammar_of_format(body.output_config.format, "output_config.format")
    return grammar_of_format(body.output_format, "output_format")


def _system_of(body: MessagesBody) -> str:
    if not isinstance(body.system, list):
        return body.system or ""
    texts = []
    for index, block in enumerate(body.system):
        if block.type != "text":
            raise BadParameter(
                f"system takes text blocks, not '{block.type}'", param=f"system[{index}]"
            )
        text = block.text or ""
        if text.startswith(BILLING):
            text = text.partition("\n")[2]
        if text:
            texts.append(text)
    return "\n\n".join(texts)


def _turns(message: Message, where: str) -> list[Turn]:
    blocks = _blocks(message, where)
    match message.role:
        case "system":
            # stays where it is: to move it would change the prompt in front of it
            return [Turn("user", reminder(_texts(blocks)))]
        case "user":
            return _user_turns(blocks)
        case "assistant":
            return [_assistant_turn(blocks)]
        case _:
            raise BadParameter(f"unknown role '{message.role}'", param=f"{where}.role")


def _blocks(message: Message, where: str) -> list[PlacedBlock]:
    if isinstance(message.content, str):
        return [PlacedBlock(Block("text", text=message.content), f"{where}.content")]
    blocks = []
    for index, given_block in enumerate(message.content):
        at = f"{where}.content[{index}]"
        kind = convert(given_block, OpaqueBlock, at).type
        if kind not in FOREIGN and not kind.endswith("_tool_result"):
            for name in ("content", "source"):
                check_depth(given_block.get(name), f"the {name} of a block", f"{at}.{name}")
            blocks.append(PlacedBlock(convert(given_block, Block, at), at))
    return blocks


def _user_turns(blocks: list[PlacedBlock]) -> list[Turn]:
    """Tool results and text in the order in which they stand."""
    turns: list[Turn] = []
    said: list[PlacedBlock] = []
    for placed in blocks:
        if placed.block.type != "tool_result":
            said.append(placed)
            continue
        if said:
            turns.append(Turn("user", _texts(said)))
            said = []
        turns.append(_result_turn(placed))
    if said or not turns:
        turns.append(Turn("user", _texts(said)))
    return turns


def _result_turn(placed: PlacedBlock) -> Turn:
    block, content = placed.block, placed.block.content
    parts = (content,) if isinstance(content, str) else tuple(map(_result_part, content or []))
    text = "".join(parts)
    if block.is_error and not text.lower().startswith(ERROR_WORDS):
        text = f"Error: {text}"  # templates have no other way to say it
    kept = tuple(part for part in parts if part)
    return Turn("tool", text, call_id=block.tool_use_id, parts=kept)


def _result_part(block: Block) -> str:
    text = _text(block)
    return unseen(block.type, block.tool_name or block.title) if text is None else text


def _assistant_turn(blocks: list[PlacedBlock]) -> Turn:
    text, thought = "", ""
    calls = []
    for block, at in blocks:
        if block.type == "thinking":
            thought += block.thinking or ""
        elif block.type == "tool_use":
            arguments = {} if block.input is None else block.input
            if not isinstance(arguments, dict):
                raise BadParameter("the input of a tool_use is an object", param=f"{at}.input")
            check_depth(arguments, "the input of a tool_use", f"{at}.input")
            calls.append(Call(block.id or "", block.name or "", arguments))
        else:
            text += _texts([PlacedBlock(block, at)])
    return Turn("assistant", text, reasoning=thought, calls=tuple(calls))


def _texts(blocks: list[PlacedBlock]) -> str:
    """Raises BadParameter: a block that is no text."""
    texts = []
    for block, at in blocks:
        text = _text(block)
        if text is None:
            raise BadParameter(f"'{block.type}' blocks are not served", param=at)
        texts.append(text)
    return "".join(texts)


def _text(block: Block) -> str | None:
    """None: this model cannot see it."""
    match block.type:
        case "text":
            return block.text or ""
        case "document" if isinstance(block.source, Source) and block.source.type == "text":
            return block.source.data or ""
        case "document" if isinstance(block.source, Source) and block.source.type == "content":
            return _text_of(block.source.content)
        case "search_result":
            return _text_of(block.content)
        case _:
            return None


def _text_of(content: str | list[Block] | None) -> str | None:
    if content is None or isinstance(content, str):
        return content or ""
    texts = [_text(block) for block in content]
    return None if None in texts else "".join(filter(None, texts))


def _tools_of(body: MessagesBody) -> tuple[dict[str, Any], ...]:
    """The client's own tools. Those that only Anthropic's servers run are left out."""
    tools = []
    names: set[str] = set()
    for index, tool in enumerate(body.tools or ()):
        where = f"tools[{index}]"
        check_depth(tool, where, where)
        if "input_schema" not in tool and tool.get("type", "custom") != "custom":
            continue
        name = check_tool_name(tool.get("name"), f"{where}.name", names)
        function = {"name": name, "description": tool.get("description") or ""}
        function["parameters"] = tool.get("input_schema") or {"type": "object", "properties": {}}
        tools.append({"type": "function", "function": function})
    return tuple(tools)


def _describe(body: MessagesBody, turns: list[Turn], choice: str | None) -> dict[str, Any]:
    return {
        "stream": bool(body.stream),
        "message_count": len(body.messages),
        "tool_count": len(body.tools or ()),
        "tool_choice": choice,
        "has_tool_history": any(turn.calls or turn.role == "tool" for turn in turns),
        "has_prediction": False,
        "stop_count": len(body.stop_sequences or ()),
    }
