"""Any JSON at all, for every protocol: a request or an error that names a field, never a fault."""

import asyncio
import json
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from services.gateway.conversation import Conversation
from services.gateway.protocols import chat_request, completions, messages_request
from services.gateway.protocols import responses_request as responses
from services.gateway.protocols.responses_store import ResponseStore
from services.gateway.rendering import messages_of
from services.gateway.request import Request
from shared.errors import BadParameter
from shared.template import ChatTemplate
from shared.tokenizer import Tokenizer
from tests.model_folders import TEMPLATES

STORE = ResponseStore(1 << 20)


def parse_response(raw: bytes) -> Request:
    fields = json.loads(raw) if raw.startswith(b'{"') else {}
    if fields.pop("prompt", None) == "x":  # what `likely` says for completions
        raw = json.dumps(fields).encode()
    return responses.parse(raw, STORE)


PARSERS: dict[str, Any] = {
    "chat": chat_request.parse,
    "messages": messages_request.parse,
    "responses": parse_response,
    "completions": completions.parse,
}
FIELDS = [
    "messages", "input", "prompt", "system", "instructions", "role", "content", "type", "text",
    "tool_calls", "function", "name", "arguments", "id", "call_id", "tool_call_id", "tool_use_id",
    "output", "tools", "tool_choice", "input_schema", "parameters", "properties", "thinking",
    "reasoning", "reasoning_content", "summary", "namespace", "action", "source", "data", "stop",
    "stop_sequences", "max_tokens", "temperature", "seed", "stream", "metadata", "model", "ninfer",
    "chat_template_kwargs", "enable_thinking", "response_format", "json_schema", "output_config",
    "format", "prediction", "logit_bias", "previous_response_id",
]  # fmt: skip
WORDS = [
    "user", "assistant", "system", "developer", "tool", "function", "message", "reasoning",
    "function_call", "function_call_output", "custom_tool_call", "item_reference", "text",
    "input_text", "output_text", "tool_use", "tool_result", "thinking", "image", "document",
    "json_schema", "object", "auto", "none", "content", "namespace", "custom", "{}", '{"a": 1}',
    "<|im_end|>", "x-anthropic-billing-header: a\nb", "",
]  # fmt: skip
texts = st.sampled_from(WORDS) | st.text(max_size=8)
values: Any = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | texts,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.sampled_from(FIELDS) | st.text(max_size=4), inner, max_size=6)
    ),
    max_leaves=24,
)
bodies = st.dictionaries(st.sampled_from(FIELDS), values, max_size=8)
turns = st.lists(st.dictionaries(st.sampled_from(FIELDS), values, max_size=6), max_size=5)
# mostly whole: what only one field spoils gets furthest
messages = st.builds(
    lambda role, content, rest: {**rest, "role": role, "content": content},
    st.sampled_from(WORDS[:6]),
    texts | st.lists(st.builds(lambda t, x: {"type": t, "text": x}, texts, texts), max_size=3),
    st.dictionaries(st.sampled_from(FIELDS), values, max_size=3),
)
likely = st.builds(
    lambda items, rest: {**rest, "messages": items, "input": items, "prompt": "x"},
    st.lists(messages, min_size=1, max_size=5) | turns,
    st.dictionaries(st.sampled_from(FIELDS), values, max_size=3),
)


def encoded(body: Any) -> bytes:
    return json.dumps(body).encode()


@pytest.mark.parametrize("protocol", PARSERS)
@settings(max_examples=300, deadline=None)
@given(body=bodies | likely)
def test_a_body_is_a_request_or_a_named_fault(protocol: str, body: Any) -> None:
    try:
        request = PARSERS[protocol](encoded(body))
    except BadParameter:
        return
    assert msgspec.json.encode(request.described)  # fit for the log


@pytest.mark.parametrize("protocol", PARSERS)
@settings(max_examples=200, deadline=None)
@given(raw=st.binary(max_size=60) | st.text(max_size=60).map(str.encode))
def test_bytes_are_refused_as_json(protocol: str, raw: bytes) -> None:
    with pytest.raises(BadParameter):
        PARSERS[protocol](raw)


@pytest.mark.parametrize("protocol", ["chat", "messages", "responses"])
@pytest.mark.parametrize("form", TEMPLATES)
@settings(
    max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(body=likely)
def test_what_is_parsed_is_rendered_or_refused(
    tokenizer: Tokenizer, form: str, protocol: str, body: Any
) -> None:
    template = _templates(tokenizer)[form]
    try:
        request = PARSERS[protocol](encoded(body))
        assert isinstance(request.prompt, Conversation)
        shown = messages_of(request.prompt, template.abilities)
        prompt = template.prepare(shown, request.prompt.tools, request.template_options)
    except BadParameter:
        return
    # each message opens once and each control token is the template's own
    opened = (prompt.ids == tokenizer.special_id("<|im_start|>")).sum()
    assert 1 <= opened <= len(shown) + 2


def _templates(tokenizer: Tokenizer) -> dict[str, ChatTemplate]:
    if not _made:
        _made.update({f: ChatTemplate(s, tokenizer, {}) for f, s in TEMPLATES.items()})
    return _made


_made: dict[str, ChatTemplate] = {}


def test_parsing_is_quick_enough_for_the_largest_body() -> None:
    """A body of 32 MiB with as many messages as are allowed takes no other path."""
    body = {"messages": [{"role": "user", "content": "x" * 3000}] * 10_000}
    assert asyncio.run(asyncio.to_thread(chat_request.parse, encoded(body))).prompt
