"""What a model says to an agent, in both forms of calls, and the clients that hear it."""

import json
from typing import Any

import anthropic
import openai

from tests.gateway.conftest import Served
from tests.model_folders import function

TEXT = {"type": "string"}
EDIT = function("edit", path=TEXT, old=TEXT, new=TEXT, all={"type": "boolean"})
READ = function("read", path=TEXT)
TOOLS: list[dict[str, Any]] = [EDIT, READ]
RESPONSES_TOOLS: Any = [{"type": "function", "strict": False, **t["function"]} for t in TOOLS]
MESSAGES_TOOLS: Any = [
    {
        "name": t["function"]["name"],
        "description": t["function"]["description"],
        "input_schema": t["function"]["parameters"],
    }
    for t in TOOLS
]

THOUGHT = "I should edit\nthe file."
SAID = "Editing 日本."
ARGUMENTS = {"path": "a.py", "old": '    x = "1"\n', "new": "    x = 2\n\n", "all": False}
ROOM = {"max_context": 20_000}


def qwen_call(name: str, arguments: dict[str, Any]) -> str:
    raw = {key: v if isinstance(v, str) else json.dumps(v) for key, v in arguments.items()}
    values = "".join(f"<parameter={key}>\n{v}\n</parameter>\n" for key, v in raw.items())
    return f"<tool_call>\n<function={name}>\n{values}</function>\n</tool_call>"


def hermes_call(name: str, arguments: dict[str, Any]) -> str:
    body = json.dumps({"name": name, "arguments": arguments}, ensure_ascii=False)
    return f"<tool_call>\n{body}\n</tool_call>"


CALL = {"qwen": qwen_call, "hermes": hermes_call}


def turn(form: str) -> str:
    """Thinking (where the form has it), text, and two calls."""
    calls = f"{CALL[form]('edit', ARGUMENTS)}\n{CALL[form]('read', {'path': 'b.py'})}"
    thinking = f"{THOUGHT}\n</think>\n\n" if form == "qwen" else ""
    return f"{thinking}{SAID}\n\n{calls}"


def openai_client(served: Served) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{served.url}/v1", api_key="unused", max_retries=0)


def async_openai(served: Served) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(base_url=f"{served.url}/v1", api_key="unused", max_retries=0)


def anthropic_client(served: Served) -> anthropic.Anthropic:
    return anthropic.Anthropic(base_url=served.url, api_key="unused", max_retries=0)


def async_anthropic(served: Served) -> anthropic.AsyncAnthropic:
    return anthropic.AsyncAnthropic(base_url=served.url, api_key="unused", max_retries=0)


def named_events(text: str) -> list[dict[str, Any]]:
    """The events of a stream that names them; each name must be its payload's type."""
    events = []
    for block in text.removesuffix("\n\n").split("\n\n"):
        name, data = block.split("\n")
        event = json.loads(data.removeprefix("data: "))
        assert name == f"event: {event['type']}"
        events.append(event)
    return events
