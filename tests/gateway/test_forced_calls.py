"""An answer that must be a tool call: the grammar in both forms, and who may ask for it."""

import copy
import json
from pathlib import Path
from typing import Any

import pytest
import tokenizers
from llguidance import LLMatcher, LLTokenizer

from services.gateway.forced_calls import ForcedCalls, grammar_of
from services.gateway.output.choice import ToolParser, parser_for
from services.gateway.output.events import CallArguments, CallEnd, CallStart, merged
from shared.errors import BadParameter
from shared.tokenizer import Tokenizer
from tests.gateway.agents import (
    ARGUMENTS,
    CALL,
    EDIT,
    MESSAGES_TOOLS,
    READ,
    RESPONSES_TOOLS,
    ROOM,
    TOOLS,
)
from tests.gateway.conftest import MESSAGES, Serve, text_of
from tests.scripted_engine import Turn, say

FORMS: list[ToolParser] = ["qwen", "hermes"]


def no_token(_: str) -> bool:
    return False


ANY = ForcedCalls("tool_choice")


@pytest.fixture(scope="session")
def vocabulary(tiny_model: Path, tokenizer: Tokenizer) -> LLTokenizer:
    text = (tiny_model / "tokenizer.json").read_text()
    return LLTokenizer(text, n_vocab=320, eos_token=list(tokenizer.stop_ids))


def admits(grammar: str, text: str, vocabulary: LLTokenizer, tokenizer: Tokenizer) -> bool:
    matcher = LLMatcher(vocabulary, grammar)
    ids = tokenizer.encode_text(text).tolist()
    return bool(matcher.try_consume_tokens(ids) == len(ids) and matcher.is_accepting())


def strict(tool: dict[str, Any], *required: str) -> dict[str, Any]:
    changed = copy.deepcopy(tool)
    changed["function"]["parameters"]["required"] = list(required)
    return changed


@pytest.mark.parametrize("form", FORMS)
def test_what_the_grammar_admits_is_read_as_the_call_it_is(
    form: ToolParser, vocabulary: LLTokenizer, tokenizer: Tokenizer
) -> None:
    tools = [strict(EDIT, "path", "old", "new", "all"), READ]
    grammar = grammar_of(ANY, tools, form, no_token)
    text = f"\n\n{CALL[form]('edit', ARGUMENTS)}\n{CALL[form]('read', {'path': 'b.py'})}"
    assert admits(grammar, text, vocabulary, tokenizer)
    parser = parser_for(form, tools, thinks=False, opens_thinking=False)
    events = merged([*parser.feed(text), *parser.finish()])
    assert [e.name for e in events if isinstance(e, CallStart)] == ["edit", "read"]
    assert all(e.complete for e in events if isinstance(e, CallEnd))
    first = next(e for e in events if isinstance(e, CallArguments))
    assert json.loads(first.text) == ARGUMENTS


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    ("forced", "calls", "is_admitted"),
    [
        (ANY, [("read", {"path": "a"})], True),
        (ANY, [], False),
        (ANY, [("read", {"path": "a"}), ("read", {"path": "b"})], True),
        (ForcedCalls("t", single=True), [("read", {"path": "a"}), ("read", {"path": "b"})], False),
        (ForcedCalls("t", "read"), [("read", {"path": "a"})], True),
        (ForcedCalls("t", "read"), [("edit", {"path": "a"})], False),
        (ForcedCalls("t", "read"), [("read", {})], False),
        (ANY, [("other", {})], False),
        (ANY, [("edit", {"all": "maybe"})], False),
        (ANY, [("edit", {"all": True})], True),
        (ANY, [("edit", {})], True),
    ],
)
def test_only_calls_that_were_asked_for_are_admitted(
    form: ToolParser,
    vocabulary: LLTokenizer,
    tokenizer: Tokenizer,
    forced: ForcedCalls,
    calls: list[tuple[str, dict[str, Any]]],
    is_admitted: bool,
) -> None:
    grammar = grammar_of(forced, [EDIT, strict(READ, "path")], form, no_token)
    text = "\n".join(CALL[form](name, arguments) for name, arguments in calls)
    assert admits(grammar, text, vocabulary, tokenizer) is is_admitted


@pytest.mark.parametrize("form", FORMS)
def test_schemas_may_refer_to_their_root_and_name_their_values(
    form: ToolParser, vocabulary: LLTokenizer, tokenizer: Tokenizer
) -> None:
    parameters = {
        "type": "object",
        "$defs": {"n": {"type": "integer"}},
        "properties": {"n": {"$ref": "#/$defs/n"}, "mode": {"type": "string", "enum": ["a", "b"]}},
        "required": ["n", "mode"],
    }
    tool = {"type": "function", "function": {"name": "f", "parameters": parameters}}
    grammar = grammar_of(ANY, [tool], form, no_token)
    for arguments, is_admitted in (
        ({"n": 3, "mode": "b"}, True),
        ({"n": 3, "mode": "c"}, False),
        ({"n": "x", "mode": "a"}, False),
    ):
        text = CALL[form]("f", arguments)
        assert admits(grammar, text, vocabulary, tokenizer) is is_admitted


@pytest.mark.parametrize("special", [True, False])
def test_marks_that_are_tokens_stand_for_themselves(
    tiny_model: Path, tokenizer: Tokenizer, special: bool
) -> None:
    settings = json.loads((tiny_model / "tokenizer.json").read_text())
    marks = ("<tool_call>", "</tool_call>")
    plain = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    settings["added_tokens"] += [
        {"id": 318 + i, "content": mark, "special": special, **plain}
        for i, mark in enumerate(marks)
    ]
    text = json.dumps(settings)
    begin, end = map(tokenizers.Tokenizer.from_str(text).token_to_id, marks)
    vocabulary = LLTokenizer(text, n_vocab=320, eos_token=[2])
    grammar = grammar_of(ANY, TOOLS, "hermes", lambda mark: mark in marks)
    matcher = LLMatcher(vocabulary, grammar)
    inner = CALL["hermes"]("read", {"path": "a"}).removeprefix(marks[0]).removesuffix(marks[1])
    ids = [begin, *tokenizer.encode_text(inner).tolist(), end]
    assert matcher.try_consume_tokens(ids) == len(ids)
    assert matcher.is_accepting()


@pytest.mark.parametrize(
    ("forced", "form"), [(ForcedCalls("t", "nothing"), "qwen"), (ForcedCalls("t"), "none")]
)
def test_what_cannot_be_forced_is_refused(forced: ForcedCalls, form: ToolParser) -> None:
    with pytest.raises(BadParameter) as refused:
        grammar_of(forced, TOOLS, form, no_token)
    assert refused.value.param == "t"


CHAT = {"messages": MESSAGES, "tools": TOOLS}
RESPONSES = {"input": "hi", "tools": RESPONSES_TOOLS}
ANTHROPIC = {"messages": MESSAGES, "tools": MESSAGES_TOOLS}


def _type_of(choice: Any) -> str:
    return str(choice["type"]) if isinstance(choice, dict) else str(choice)


@pytest.mark.parametrize(
    ("path", "body", "choice"),
    [
        ("/v1/chat/completions", CHAT, "required"),
        ("/v1/chat/completions", CHAT, {"type": "function", "function": {"name": "read"}}),
        ("/v1/responses", RESPONSES, "required"),
        ("/v1/responses", RESPONSES, {"type": "function", "name": "read"}),
        ("/v1/messages", ANTHROPIC, {"type": "any"}),
        ("/v1/messages", ANTHROPIC, {"type": "tool", "name": "read"}),
    ],
)
async def test_every_protocol_may_force_a_call(
    serve: Serve, tool_models: dict[str, Path], path: str, body: dict[str, Any], choice: Any
) -> None:
    model = tool_models["hermes"]
    async with serve(say([]), model=model, engine=ROOM, indexer=False) as served:
        asked = body | {"tool_choice": choice}
        async with served.http.post(served.url + path, json=asked) as answer:
            assert answer.status == 200, await answer.text()
        grammar = served.engine.generates[0].grammar
        assert grammar is not None
        logged = (await served.wait_for_log("request_start"))["request"]["tool_choice"]
        assert logged == {"function": "named"}.get(_type_of(choice), _type_of(choice))
        assert ("edit" in grammar.text) is (choice in ("required", {"type": "any"}))
        async with served.http.post(served.url + path, json=asked | {"min_tokens": 3}) as answer:
            assert answer.status == 400


@pytest.mark.parametrize("function", [{"name": "f"}, {"name": "f", "parameters": None}])
def test_a_function_without_parameters_takes_none(
    function: dict[str, Any], vocabulary: LLTokenizer, tokenizer: Tokenizer
) -> None:
    grammar = grammar_of(ANY, [{"type": "function", "function": function}], "hermes", no_token)
    for arguments, admitted in (("{}", True), ('{"a": 1}', False)):
        text = f'<tool_call>\n{{"name": "f", "arguments": {arguments}}}\n</tool_call>'
        assert admits(grammar, text, vocabulary, tokenizer) is admitted


@pytest.mark.parametrize("stream", [False, True])
async def test_a_call_that_was_cut_before_its_name_leaves_no_text(
    serve: Serve, tokenizer: Tokenizer, tool_models: dict[str, Path], stream: bool
) -> None:
    ids = tokenizer.encode_text('<tool_call>\n{"name": "re').tolist()

    async def cut(turn: Turn) -> None:
        await turn.tokens(ids)
        await turn.finish("length")

    async with serve(cut, model=tool_models["hermes"], engine=ROOM) as served:
        asked = {"tools": TOOLS, "tool_choice": "required"}
        if stream:
            text = text_of(await served.events(**asked))
        else:
            _, body = await served.chat(**asked)
            text = body["choices"][0]["message"]["content"] or ""
            assert body["choices"][0]["finish_reason"] == "length"
    assert text == ""


@pytest.mark.parametrize("name", ["", "a b", 'a"b', "x" * 129, "é"])
async def test_a_name_that_no_tool_can_have_is_refused(serve: Serve, name: str) -> None:
    tool = {"type": "function", "function": {"name": name}}
    async with serve(say([])) as served:
        status, body = await served.chat(tools=[tool])
    assert (status, body["error"]["param"]) == (400, "tools[0].function.name")


async def test_two_tools_with_one_name_are_refused(serve: Serve) -> None:
    async with serve(say([])) as served:
        status, body = await served.chat(tools=[READ, READ])
    assert (status, body["error"]["param"]) == (400, "tools[1].function.name")
