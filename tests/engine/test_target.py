"""Every sampling rule gives the same tokens with copies on: the rules see drafts as history."""

from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
import torch

from shared.messages import Finished, OutputTokens, Speculation, ThinkingLimit
from tests.engine.conversation import Conversation
from tests.engine.local import LocalEngine, generate

# repeats itself, so that copies are found and partly accepted
PROMPT = np.tile(np.arange(20, 50, dtype=np.int32), 6)
RULES: dict[str, dict[str, Any]] = {
    "presence": {"presence_penalty": 0.8},
    "frequency": {"frequency_penalty": 0.3},
    "repetition": {"repetition_penalty": 1.2},
    "bias": {"logit_bias": ((20, 3.0), (21, -100.0))},
    "all": {
        "presence_penalty": 0.2,
        "frequency_penalty": 0.1,
        "repetition_penalty": 1.05,
        "logit_bias": ((30, 2.0),),
        "top_k": 40,
        "top_p": 0.9,
        "min_p": 0.01,
    },
}


@pytest.fixture(scope="module")
def local(tiny_model: Path) -> LocalEngine:
    return LocalEngine(tiny_model, slots=2, context=512)


@pytest.mark.parametrize("temperature", [0.0, 0.6])
@pytest.mark.parametrize("rule", RULES)
def test_penalties_and_bias_are_exact_under_speculation(
    local: LocalEngine, rule: str, temperature: float
) -> None:
    request = generate("r", PROMPT, output=80, temperature=temperature)
    sampling = msgspec.structs.replace(request.sampling, **RULES[rule])
    request = msgspec.structs.replace(request, sampling=sampling)
    plain = local.run([request], width=0)["r"]
    free = local.run([generate("r", PROMPT, output=80, temperature=temperature)], width=0)["r"]
    assert plain.token_ids != free.token_ids, "the rule changes nothing here"
    for width in (15, 63):
        assert local.run([request], width=width)["r"].token_ids == plain.token_ids


def test_a_stop_token_cannot_come_before_the_minimum(local: LocalEngine) -> None:
    free = local.run([generate("r", PROMPT, output=40)], width=0)["r"].token_ids
    stop = free[3]
    request = generate("r", PROMPT, output=40, stop_ids=(stop,))
    ended = local.run([request], width=0)["r"]
    longer = msgspec.structs.replace(request, min_output_tokens=20)
    for width in (0, 15):
        output = local.run([longer], width=width)["r"]
        assert len(output.token_ids) >= 20
        assert stop not in output.token_ids[:20]
    assert ended.token_ids == free[: free.index(stop) + 1]


@pytest.mark.parametrize("width", [0, 15])
def test_logprobs_are_those_of_the_model_however_a_token_was_drafted(
    local: LocalEngine, width: int
) -> None:
    talk = Conversation(local, width=width)
    request = msgspec.structs.replace(generate("r", PROMPT, output=30), top_logprobs=3)
    ((tokens, _),) = talk.ask(request)
    messages = [m for m in talk.post.sent if isinstance(m, OutputTokens)]
    parts = [m.logprobs for m in messages]
    assert all(part is not None and part.width == 3 for part in parts)
    chosen = np.concatenate([part.chosen for part in parts if part])
    top_ids = np.concatenate([part.top_ids for part in parts if part]).reshape(-1, 3)
    top = np.concatenate([part.top for part in parts if part]).reshape(-1, 3)
    assert len(chosen) == len(tokens)
    assert top_ids[:, 0].tolist() == tokens, "greedy takes the most likely"
    assert np.allclose(top[:, 0], chosen)
    assert (np.diff(top, axis=1) <= 0).all()
    reference = local.model_logits(np.concatenate([PROMPT, np.array(tokens, np.int32)]))
    expected = reference[len(PROMPT) - 1 : -1].log_softmax(-1)
    wanted = expected[torch.arange(len(tokens)), torch.tensor(tokens)]
    assert np.allclose(chosen, wanted.numpy(), atol=1e-4)


def test_a_thinking_budget_that_ends_inside_a_round_is_exact(local: LocalEngine) -> None:
    request = generate("r", PROMPT, output=60)
    free = local.run([request], width=0)["r"].token_ids
    end, note = sorted(set(range(5, 60)) - set(free))[:2]
    limit = ThinkingLimit(
        budget_tokens=13, start_id=None, end_id=end, forced_ids=(note, end), is_open=True
    )
    request = msgspec.structs.replace(request, thinking=limit)
    plain = local.run([request], width=0)["r"]
    assert plain.token_ids[:15] == [*free[:13], note, end]
    for width in (15, 63):
        copied = local.run([request], width=width)["r"]
        assert copied.token_ids == plain.token_ids


@pytest.mark.parametrize(("asked", "widest"), [(None, 15), (0, 0), (4, 4), (40, 15)])
def test_a_request_may_narrow_its_drafts(
    local: LocalEngine, asked: int | None, widest: int
) -> None:
    request = generate("r", PROMPT, output=60)
    wanted = Speculation(ngram_draft_tokens=asked)
    output = local.run([msgspec.structs.replace(request, speculation=wanted)], width=15)["r"]
    assert isinstance(output.end, Finished)
    positions = output.end.stats.speculative.accepted_per_position
    assert all(count == 0 for count in positions[widest:])
    assert (output.accepted > 0) == (widest > 0)
