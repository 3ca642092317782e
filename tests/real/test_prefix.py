"""The second turn of a real conversation: only what is new is computed, the text is the same."""

from pathlib import Path

import numpy as np
import pytest

from bench.texts import INVENTORY
from shared.template import ChatTemplate
from tests.engine.conversation import Conversation
from tests.engine.local import LocalEngine, generate

pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def engine(demo_model: Path) -> LocalEngine:
    return LocalEngine(demo_model, slots=2)


@pytest.mark.parametrize("temperature", [0.0, 0.7], ids=["greedy", "seeded"])
def test_a_second_turn_reuses_the_first(
    engine: LocalEngine, demo_model: Path, temperature: float
) -> None:
    template = ChatTemplate.load(demo_model, engine.tokenizer)
    talk = Conversation(engine, host_blocks=64)
    messages = [{"role": "user", "content": f"Explain this file.\n\n{INVENTORY}"}]
    prompt = template.encode(messages)
    first = generate(
        "a", prompt, output=40, temperature=temperature, stop_ids=engine.tokenizer.stop_ids
    )
    ((answer, _),) = talk.ask(first)
    messages += [
        {"role": "assistant", "content": engine.tokenizer.decode(answer)},
        {"role": "user", "content": "Write the class again, with a docstring in every method."},
    ]
    again = template.encode(messages)
    second = generate("b", again, output=40, temperature=temperature)
    other = generate("c", np.flip(prompt[:200]).copy(), output=4)
    third = generate("d", prompt, output=4)
    ((tokens, stats),) = talk.ask(second)
    assert stats.cached_tokens >= len(prompt)
    assert tokens == Conversation(LocalEngine(demo_model), width=0).ask(second)[0][0]
    talk.ask(other)
    ((_, rest),) = talk.ask(third)
    assert rest.cached_tokens >= len(prompt) - 64
