"""A model's own tokens come back as they were."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from services.gateway.output_memory import MOST_ANSWERS, OutputMemory
from shared.tokenizer import Tokenizer
from tests.gateway.conftest import Serve
from tests.scripted_engine import say

END = 2  # <|im_end|>


@pytest.fixture(scope="module")
def merging_model(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """As the tiny model, but "ab" is a token, which the tokenizer prefers to two."""
    folder = tmp_path_factory.mktemp("merging") / "model"
    shutil.copytree(tiny_model, folder)
    path = folder / "tokenizer.json"
    tokenizer = json.loads(path.read_text(encoding="utf-8"))
    vocabulary = tokenizer["model"]["vocab"]
    vocabulary["ab"] = len(vocabulary)
    tokenizer["model"]["merges"] = [["a", "b"]]
    path.write_text(json.dumps(tokenizer), encoding="utf-8")
    return folder


@pytest.fixture
def merging(merging_model: Path) -> Tokenizer:
    return Tokenizer.load(merging_model)


def apart(tokenizer: Tokenizer, text: str) -> list[int]:
    """A token for each letter."""
    return [int(tokenizer.encode_text(letter)[0]) for letter in text]


def ids(tokenizer: Tokenizer, text: str) -> np.ndarray:
    return tokenizer.encode_prompt(text)


def test_an_answer_is_shown_in_the_tokens_that_the_model_wrote(merging: Tokenizer) -> None:
    memory = OutputMemory(merging)
    prompt = ids(merging, "go<|im_end|>")
    memory.keep(prompt, "", [*apart(merging, "xab"), END])
    found = memory.restore(ids(merging, "go<|im_end|>xab<|im_end|>ab"), "")
    assert found.tolist() == [
        *prompt.tolist(),
        *apart(merging, "xab"),
        END,
        *ids(merging, "ab").tolist(),
    ]


def test_turn_after_turn_is_found(merging: Tokenizer) -> None:
    memory = OutputMemory(merging)
    text, shown = "go<|im_end|>", ids(merging, "go<|im_end|>")
    for _ in range(3):
        memory.keep(shown, "", [*apart(merging, "ab"), END])
        text += "ab<|im_end|>ab<|im_end|>"
        asked = [*apart(merging, "ab"), END, *ids(merging, "ab<|im_end|>").tolist()]
        shown = np.concatenate((shown, asked))
        assert memory.restore(ids(merging, text), "").tolist() == shown.tolist()


@pytest.mark.parametrize(
    ("prompt", "salt"),
    [
        ("go<|im_end|>abc<|im_end|>", ""),  # another answer
        ("Go<|im_end|>ab<|im_end|>", ""),  # another prompt
        ("go<|im_end|>ab<|im_end|>", "other"),  # another's
        ("go<|im_end|>", ""),
    ],
)
def test_whatever_else_stays_as_it_is(merging: Tokenizer, prompt: str, salt: str) -> None:
    memory = OutputMemory(merging)
    memory.keep(ids(merging, "go<|im_end|>"), "", [*apart(merging, "ab"), END])
    given = ids(merging, prompt)
    assert memory.restore(given, salt).tolist() == given.tolist()


def test_an_answer_cut_short_is_known_too(merging: Tokenizer) -> None:
    memory = OutputMemory(merging)
    memory.keep(ids(merging, "go<|im_end|>"), "", apart(merging, "ab"))
    found = memory.restore(ids(merging, "go<|im_end|>ab"), "")
    assert found.tolist()[-2:] == apart(merging, "ab")


def test_every_answer_to_a_prompt_is_known_and_the_first_tokens_of_a_text_stay(
    merging: Tokenizer,
) -> None:
    memory, prompt = OutputMemory(merging), ids(merging, "go<|im_end|>")
    for answer in (apart(merging, "xab"), apart(merging, "yab"), ids(merging, "xab").tolist()):
        memory.keep(prompt, "", [*answer, END])
    for text in ("xab", "yab"):
        found = memory.restore(ids(merging, f"go<|im_end|>{text}<|im_end|>"), "")
        assert found.tolist() == [*prompt.tolist(), *apart(merging, text), END]


def test_the_oldest_answers_make_room(merging: Tokenizer) -> None:
    by_size, by_count = OutputMemory(merging, most_tokens=5), OutputMemory(merging)
    prompts = [ids(merging, f"{n}<|im_end|>") for n in range(MOST_ANSWERS + 1)]
    for prompt in prompts[:3]:
        by_size.keep(prompt, "", apart(merging, "ab"))
    for prompt in prompts:
        by_count.keep(prompt, "", apart(merging, "ab"))

    def known(memory: OutputMemory, number: int) -> bool:
        shown = memory.restore(ids(merging, f"{number}<|im_end|>ab<|im_end|>"), "")
        return shown.tolist()[-3:-1] == apart(merging, "ab")

    assert [known(by_size, n) for n in range(3)] == [False, True, True]
    assert [known(by_count, n) for n in (0, 1, MOST_ANSWERS)] == [False, True, True]


async def test_the_second_turn_begins_with_the_first_token_by_token(
    serve: Serve, merging_model: Path, merging: Tokenizer
) -> None:
    answer = apart(merging, "fabulous")  # the script ends it
    async with serve(say([answer]), model=merging_model) as served:
        asked: dict[str, Any] = {"role": "user", "content": "go"}
        _, first = await served.chat(messages=[asked])
        said = first["choices"][0]["message"]
        await served.chat(messages=[asked, said, {"role": "user", "content": "ab"}])
        one, two = (generate.prompt_ids.tolist() for generate in served.engine.generates)
    assert said["content"] == "fabulous"
    assert two[: len(one) + len(answer) + 1] == [*one, *answer, END]
