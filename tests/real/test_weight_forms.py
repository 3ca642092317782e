"""The demo model in eight and in four bits: exact, and close to what it says in bf16."""

from pathlib import Path

import numpy as np
import pytest
import torch

from services.engine.models.weight_form import WeightForm
from services.engine.probe import is_exact
from shared.template import ChatTemplate
from tests.engine.local import LocalEngine, generate
from tests.real.prompts import PROMPTS

pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]
FORMS: tuple[WeightForm, ...] = ("int8", "int4")
# share of 256 tokens of a text where both say the same next one; measured 0.92 and 0.96
AGREE = {"int8": 0.85, "int4": 0.9}


@pytest.fixture(scope="module", params=FORMS)
def engine(demo_model: Path, request: pytest.FixtureRequest) -> LocalEngine:
    local = LocalEngine(demo_model, dtype=torch.bfloat16, form=request.param, mtp=True)
    if not is_exact(local.model, local.kv):
        pytest.skip("this machine's kernels round differently at different widths")
    return local


def test_copies_of_any_width_change_no_token(engine: LocalEngine, demo_model: Path) -> None:
    template = ChatTemplate.load(demo_model, engine.tokenizer)
    prompt = next(prompt for prompt in PROMPTS if prompt.copies)
    texts = [m["content"] for m in prompt.messages if m["role"] == "tool"]
    for temperature in (0.0, 0.7):
        request = generate(
            "r", template.encode(prompt.messages), output=40, temperature=temperature
        )
        plain = engine.run([request], width=0)["r"]
        for width in (15, 63):
            copied = engine.run([request], width=width, policy="adaptive", tool_texts=texts)["r"]
            assert copied.token_ids == plain.token_ids
            if temperature == 0.0:
                assert copied.accepted >= 5


@pytest.mark.parametrize("temperature", [0.0, 0.7])
def test_neural_rounds_change_no_token(
    engine: LocalEngine, demo_model: Path, temperature: float
) -> None:
    """Nor do copies beside them; the drafter was trained on the states of the bf16 model."""
    template = ChatTemplate.load(demo_model, engine.tokenizer)
    requests = [
        generate(prompt.name, template.encode(prompt.messages), output=40, temperature=temperature)
        for prompt in PROMPTS[:3]
    ]
    plain = engine.run(requests, width=0)
    accepted = {}
    for width in (0, 15):
        drafted = engine.run(requests, width=width, draft_tokens=3)
        for name, output in drafted.items():
            assert output.token_ids == plain[name].token_ids
        accepted[width] = sum(output.neural.accepted_tokens for output in drafted.values())
    assert accepted[0] >= 10


def test_it_mostly_says_what_the_full_model_says(engine: LocalEngine, demo_model: Path) -> None:
    text = (demo_model / "config.json").read_text() + Path(__file__).read_text()
    ids = engine.tokenizer.encode_text(text)[:256].astype(np.int32)
    ours = engine.model_logits(ids).argmax(-1)
    full = LocalEngine(demo_model, slots=1, dtype=torch.bfloat16).model_logits(ids).argmax(-1)
    assert float((ours == full).float().mean()) > AGREE[engine.model.weight_form]
