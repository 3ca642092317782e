"""A grammar holds at every column, and the tokens do not depend on the drafts."""

import json
from pathlib import Path

import msgspec
import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from services.engine.grammar import GrammarCompiler
from services.gateway import grammars
from shared.messages import Failed, Finished, Generate, Grammar
from tests.engine.local import LocalEngine, generate

PROMPT = np.tile(np.arange(20, 50, dtype=np.int32), 6)
SCHEMA = {
    "type": "object",
    "properties": {
        "path": {"type": "string", "maxLength": 12},
        "mode": {"enum": ["read", "write"]},
        "lines": {"type": "array", "items": {"type": "boolean"}, "minItems": 2, "maxItems": 3},
    },
    "required": ["path", "mode", "lines"],
    "additionalProperties": False,
}


@pytest.fixture(scope="module")
def local(tiny_model: Path) -> LocalEngine:
    return LocalEngine(tiny_model, slots=2, context=1024)


@pytest.fixture(scope="module")
def compiler(tiny_model: Path, local: LocalEngine) -> GrammarCompiler:
    return GrammarCompiler(tiny_model, local.runner.vocab_size, local.tokenizer.stop_ids)


def shaped(local: LocalEngine, grammar: str, **options: object) -> Generate:
    request = generate("r", PROMPT, output=300, stop_ids=local.tokenizer.stop_ids, **options)  # type: ignore[arg-type]
    return msgspec.structs.replace(request, grammar=Grammar(text=grammar))


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("width", [15, 63])
def test_the_output_is_of_its_schema_and_exact_under_speculation(
    local: LocalEngine, width: int, temperature: float
) -> None:
    request = shaped(local, grammars.json_schema(SCHEMA, "s"), temperature=temperature)
    plain = local.run([request], width=0)["r"]
    copied = local.run([request], width=width)["r"]
    assert copied.token_ids == plain.token_ids
    assert isinstance(plain.end, Finished)
    assert plain.end.reason == "stop"
    value = json.loads(local.tokenizer.decode(plain.token_ids))
    assert value.keys() == SCHEMA["properties"].keys()  # type: ignore[attr-defined]
    assert value["mode"] in ("read", "write")
    assert 2 <= len(value["lines"]) <= 3


def test_a_choice_is_made_among_its_texts(local: LocalEngine) -> None:
    request = shaped(local, grammars.choice(["alpha", 'be"ta'], "c"))
    text = local.tokenizer.decode(local.run([request], width=15)["r"].token_ids)
    assert text in ("alpha", 'be"ta')


def test_a_grammar_behind_a_token_leaves_what_stands_before_free(local: LocalEngine) -> None:
    free = local.run([generate("r", PROMPT, output=12)], width=0)["r"].token_ids
    request = shaped(local, grammars.regex("[ab]{4}", "x"))
    assert request.grammar is not None
    later = msgspec.structs.replace(request.grammar, after_id=free[9])
    request = msgspec.structs.replace(request, grammar=later)
    plain = local.run([request], width=0)["r"].token_ids
    behind = free.index(free[9]) + 1
    assert plain[:behind] == free[:behind]
    assert set(local.tokenizer.decode(plain[behind:])) <= {"a", "b"}
    assert len(local.tokenizer.decode(plain[behind:])) == 4
    assert local.run([request], width=15)["r"].token_ids == plain


def test_a_grammar_that_is_none_is_refused(local: LocalEngine) -> None:
    end = local.run([shaped(local, "nonsense")], width=0)["r"].end
    assert isinstance(end, Failed)
    assert "grammar" in end.message


@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(text=st.from_regex("[ab]{3,9}", fullmatch=True), extra=st.integers(0, 40), data=st.data())
def test_masks_along_drafts_are_those_of_committing_them(
    local: LocalEngine, compiler: GrammarCompiler, text: str, extra: int, data: st.DataObject
) -> None:
    grammar = Grammar(text=grammars.regex("[ab]{2,9}", "x"))
    drafts = [*local.tokenizer.encode_text(text).tolist(), extra]
    state, stepwise = compiler.start(grammar), compiler.start(grammar)
    admitted = state.admitted(drafts)
    drafts = drafts[:admitted]
    first = data.draw(st.integers(0, len(drafts)))
    logits = torch.zeros(len(drafts) + 1 - first, local.runner.vocab_size)
    state.mask(logits, first, drafts)
    stepwise.observe(drafts[:first])
    for c, row in enumerate(logits):
        if c:
            stepwise.observe(drafts[first + c - 1 : first + c])
        alone = torch.zeros(1, local.runner.vocab_size)
        stepwise.mask(alone, 0, [])
        assert torch.equal(alone[0], row)
        assert bool((row == 0).any()), "something is always admitted"
    again = torch.zeros_like(logits)
    state.mask(again, first, drafts)
    assert torch.equal(again, logits), "looking along drafts changes nothing"
