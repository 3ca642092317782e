"""Copying never changes the text: the demo model in bf16 and fp32, both policies."""

from pathlib import Path

import numpy as np
import pytest
import torch

from services.engine.batch import Batch, RowSpan
from services.engine.drafting.settings import Policy
from services.engine.probe import is_exact
from shared.messages import Finished
from shared.template import ChatTemplate
from tests.engine.local import LocalEngine, Output, generate
from tests.real.prompts import PROMPTS, Prompt

pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]

OUTPUT_TOKENS = 48
COPYING: tuple[tuple[int, Policy], ...] = (
    (15, "fixed"),
    (63, "fixed"),
    (15, "adaptive"),
    (63, "adaptive"),
)


@pytest.fixture(scope="module", params=[torch.bfloat16, torch.float32], ids=["bf16", "fp32"])
def engine(demo_model: Path, request: pytest.FixtureRequest) -> LocalEngine:
    local = LocalEngine(demo_model, dtype=request.param)
    if request.param is torch.bfloat16 and not is_exact(local.model, local.kv):
        pytest.skip("this machine's kernels round differently at different widths")
    return local


@pytest.fixture(scope="module")
def template(demo_model: Path, engine: LocalEngine) -> ChatTemplate:
    return ChatTemplate.load(demo_model, engine.tokenizer)


def tool_texts(prompt: Prompt) -> list[str]:
    return [m["content"] for m in prompt.messages if m["role"] == "tool"]


def run(
    engine: LocalEngine,
    prompt_ids: np.ndarray,
    prompt: Prompt,
    width: int,
    temperature: float,
    *,
    policy: Policy = "fixed",
) -> Output:
    request = generate("r", prompt_ids, output=OUTPUT_TOKENS, temperature=temperature)
    texts = tool_texts(prompt)
    return engine.run([request], width=width, policy=policy, tool_texts=texts)["r"]


@pytest.mark.parametrize("prompt", PROMPTS, ids=lambda p: p.name)
@pytest.mark.parametrize("temperature", [0.0, 0.7], ids=["greedy", "seeded"])
def test_output_is_the_same_with_copies_of_any_width(
    engine: LocalEngine, template: ChatTemplate, prompt: Prompt, temperature: float
) -> None:
    prompt_ids = template.encode(prompt.messages)
    plain = run(engine, prompt_ids, prompt, 0, temperature)
    assert plain.accepted == 0
    for width, policy in COPYING:
        copied = run(engine, prompt_ids, prompt, width, temperature, policy=policy)
        assert copied.token_ids == plain.token_ids
        if prompt.copies and temperature == 0.0:
            assert copied.accepted >= 5


@pytest.mark.parametrize("temperature", [0.0, 0.7], ids=["greedy", "seeded"])
@pytest.mark.parametrize("first", [0, 4, 8])
def test_output_is_the_same_beside_three_other_requests(
    engine: LocalEngine, template: ChatTemplate, first: int, temperature: float
) -> None:
    group = PROMPTS[first : first + 4]
    prompt_ids = {p.name: template.encode(p.messages) for p in group}
    alone = {p.name: run(engine, prompt_ids[p.name], p, 0, temperature).token_ids for p in group}
    requests = [
        generate(p.name, prompt_ids[p.name], output=OUTPUT_TOKENS, temperature=temperature)
        for p in group
    ]
    texts = [text for p in group for text in tool_texts(p)]
    for width, policy in ((0, "fixed"), *COPYING[-2:]):
        together = engine.run(requests, width=width, policy=policy, tool_texts=texts)
        assert {name: output.token_ids for name, output in together.items()} == alone


def test_a_copy_needs_fewer_passes_than_tokens(engine: LocalEngine, template: ChatTemplate) -> None:
    prompt = PROMPTS[0]
    copied = run(engine, template.encode(prompt.messages), prompt, 63, 0.0)
    assert isinstance(copied.end, Finished)
    assert copied.end.stats.decode_passes * 3 <= len(copied.token_ids)


def test_a_stop_token_inside_a_copy_ends_the_output_there(
    engine: LocalEngine, template: ChatTemplate
) -> None:
    prompt = PROMPTS[0]
    prompt_ids = template.encode(prompt.messages)
    plain = run(engine, prompt_ids, prompt, 0, 0.0).token_ids
    stop = plain[20]
    expected = plain[: plain.index(stop) + 1]
    request = generate("r", prompt_ids, output=OUTPUT_TOKENS, stop_ids=(stop,))
    output = engine.run([request], width=63)["r"]
    assert output.token_ids == expected
    assert isinstance(output.end, Finished)
    assert output.end.reason == "stop"
    assert output.end.stats.output_tokens == len(expected)


@pytest.mark.parametrize("budget", [1, 2])
def test_the_last_output_token_is_never_copied(
    engine: LocalEngine, template: ChatTemplate, budget: int
) -> None:
    prompt = PROMPTS[0]
    request = generate("r", template.encode(prompt.messages), output=budget)
    output = engine.run([request], width=63)["r"]
    assert len(output.token_ids) == budget
    assert output.accepted == 0


def test_passes_across_1024_tokens_give_the_same_bits(
    engine: LocalEngine, template: ChatTemplate
) -> None:
    if engine.model.dtype is not torch.bfloat16:
        pytest.skip("fp32 products depend on the width here")
    ids = np.resize(template.encode(PROMPTS[0].messages), 1100)
    wide = _logits(engine, ids, (512, 448), 140)
    for width in (1, 7, 63):
        assert torch.equal(_logits(engine, ids, (512, 448), width), wide)


def _logits(
    engine: LocalEngine, ids: np.ndarray, prefill: tuple[int, ...], width: int
) -> torch.Tensor:
    """fp32 [len(ids), vocab]: passes of the widths of `prefill`, then of `width`."""
    places, parts, start = torch.arange(len(ids)), [], 0
    tokens = torch.from_numpy(ids.astype(np.int64))
    widths = [*prefill, *([width] * len(ids))]
    while start < len(ids):
        columns = min(widths.pop(0), len(ids) - start)
        here = slice(start, start + columns)
        rows = (RowSpan(slot=0, start=start, columns=columns, offset=0),)
        batch = Batch(tokens[here], places[here], rows, places[:columns])
        parts.append(engine.model.forward(batch, engine.kv).logits)
        start += columns
    return torch.cat(parts)
