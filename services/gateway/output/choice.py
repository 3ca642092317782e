"""Which parser an output needs: told by the model's template, or by the operator."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from services.gateway.output.dialect import Dialect
from services.gateway.output.hermes import HermesCalls
from services.gateway.output.markup import MarkupParser
from services.gateway.output.output import OutputParser, PlainParser
from services.gateway.output.qwen import QwenCalls
from services.gateway.output.schema import Tools

ToolParser = Literal["qwen", "hermes", "none"]
OPTIONS = ("auto", "hermes", "qwen", "none")


def tool_parser_of(option: str, template_source: str) -> ToolParser:
    """What `--tool-parser` means for this template."""
    if option == "qwen" or (option == "auto" and "<function=" in template_source):
        return "qwen"
    if option == "hermes" or (option == "auto" and "<tool_call>" in template_source):
        return "hermes"
    return "none"


def parser_for(
    tool_parser: ToolParser,
    tools: Sequence[Mapping[str, Any]],
    *,
    thinks: bool,
    opens_thinking: bool,
) -> OutputParser:
    dialect: Dialect | None = None
    if tools and tool_parser == "qwen":
        dialect = QwenCalls(Tools(tools))
    elif tools and tool_parser == "hermes":
        dialect = HermesCalls(Tools(tools))
    if dialect is None and not thinks:
        return PlainParser()
    return MarkupParser(dialect, thinks=thinks, opens_thinking=opens_thinking)
