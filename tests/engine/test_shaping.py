"""Bias, minimum length and penalties, against a slow reading of their definitions."""

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from services.engine.shaping import LogitShaper
from shared.messages import Generate, Sampling

VOCAB = 12
CPU = torch.device("cpu")


def request(
    prompt: list[int], *, stops: tuple[int, ...] = (), shortest: int = 0, **sampling: Any
) -> Generate:
    return Generate(
        request_id="r",
        prompt_ids=np.array(prompt, np.int32),
        max_output_tokens=50,
        stop_ids=stops,
        sampling=Sampling(temperature=1.0, top_p=1.0, top_k=0, min_p=0.0, seed=1, **sampling),
        expect_index=False,
        queue_deadline_s=9.0,
        min_output_tokens=shortest,
    )


def slowly(row: list[float], wanted: Generate, output: list[int]) -> list[float]:
    """One column, token by token, from the definitions."""
    sampling = wanted.sampling
    shaped = []
    for token, given_logit in enumerate(row):
        logit = given_logit + sum(bias for i, bias in sampling.logit_bias if i == token)
        if len(output) < wanted.min_output_tokens and token in wanted.stop_ids:
            logit = -np.inf
        count = output.count(token)
        if count or token in wanted.prompt_ids:
            penalty = sampling.repetition_penalty
            logit = logit / penalty if logit > 0 else logit * penalty
        logit -= sampling.frequency_penalty * count + sampling.presence_penalty * (count > 0)
        shaped.append(logit)
    return shaped


tokens = st.lists(st.integers(0, VOCAB - 1), max_size=12)


@settings(max_examples=150, deadline=None)
@given(
    prompt=tokens.filter(bool),
    output=tokens,
    drafts=tokens,
    first=st.integers(0, 12),
    shortest=st.integers(0, 10),
    presence=st.sampled_from([0.0, 1.5, -0.5]),
    frequency=st.sampled_from([0.0, 0.75]),
    repetition=st.sampled_from([1.0, 1.3]),
    bias=st.dictionaries(st.integers(0, VOCAB - 1), st.floats(-9, 9, width=32), max_size=3),
)
def test_each_column_is_shaped_as_if_its_drafts_were_committed(
    *,
    prompt: list[int],
    output: list[int],
    drafts: list[int],
    first: int,
    shortest: int,
    presence: float,
    frequency: float,
    repetition: float,
    bias: dict[int, float],
) -> None:
    first = min(first, len(drafts))
    wanted = request(
        prompt,
        stops=(3, 5),
        shortest=shortest,
        presence_penalty=presence,
        frequency_penalty=frequency,
        repetition_penalty=repetition,
        logit_bias=tuple(bias.items()),
    )
    shaper = LogitShaper(wanted, VOCAB, CPU)
    for token in output:
        shaper.observe([token])
    columns = len(drafts) + 1 - first
    logits = torch.randn(columns, VOCAB, generator=torch.Generator().manual_seed(len(drafts)))
    before = logits.clone()
    shaped = shaper.shape(logits, first, drafts)
    assert torch.equal(logits, before), "the model's own logits are still needed"
    for c in range(columns):
        expected = slowly(before[c].tolist(), wanted, [*output, *drafts[: first + c]])
        assert shaped[c].tolist() == pytest.approx(expected, rel=1e-5, abs=1e-5)


def test_a_request_without_rules_pays_nothing() -> None:
    assert not LogitShaper.is_needed(request([1]))
    assert LogitShaper.is_needed(request([1], presence_penalty=0.1))
    assert LogitShaper.is_needed(request([1], shortest=1))
    assert LogitShaper.is_needed(request([1], logit_bias=((1, 1.0),)))
