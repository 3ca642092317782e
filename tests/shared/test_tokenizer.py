import json
import random
from itertools import pairwise
from pathlib import Path

import pytest
import tokenizers
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from shared.errors import CheckpointError
from shared.tokenizer import Detokenizer, Tokenizer

TEXTS = (
    "plain text\n    with indentation\t\n",
    "日本語のテキスト と émojis 👩‍👩‍👧 🏳️‍🌈",
    "<|im_end|> in the middle <|im_start|>",
    "\r\n  →  1\tdef f():\n",
)


@pytest.fixture(scope="module")
def tokenizer(tiny_model: Path) -> Tokenizer:
    return Tokenizer.load(tiny_model)


@pytest.mark.parametrize("text", TEXTS)
def test_text_comes_back_as_it_was(tokenizer: Tokenizer, text: str) -> None:
    assert tokenizer.decode(tokenizer.encode_text(text)) == text


def test_special_tokens_in_text_are_text(tokenizer: Tokenizer) -> None:
    ids = tokenizer.encode_text("a<|im_end|>")
    assert not tokenizer.special_ids & set(ids.tolist())
    assert ids.dtype == "int32"


def test_special_tokens_in_a_prompt_are_themselves(tokenizer: Tokenizer) -> None:
    ids = tokenizer.encode_prompt("a<|im_end|>")
    assert ids.tolist()[-1] == tokenizer.special_id("<|im_end|>")


def test_stop_ids_join_the_settings_and_the_tokenizers_own_end(
    tiny_model: Path, tmp_path: Path
) -> None:
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (tmp_path / name).write_bytes((tiny_model / name).read_bytes())
    (tmp_path / "generation_config.json").write_text(json.dumps({"eos_token_id": [0, 7]}))
    assert Tokenizer.load(tmp_path).stop_ids == (0, 7, 2)


def test_settings_that_are_not_json_stop_the_start(tiny_model: Path, tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_bytes((tiny_model / "tokenizer.json").read_bytes())
    (tmp_path / "generation_config.json").write_text("{")
    with pytest.raises(CheckpointError, match=r"generation_config\.json"):
        Tokenizer.load(tmp_path)


def test_a_missing_tokenizer_stops_the_start(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"tokenizer\.json"):
        Tokenizer.load(tmp_path)


@pytest.mark.parametrize("text", TEXTS)
def test_text_by_token_is_the_whole_text_without_broken_characters(
    tokenizer: Tokenizer, text: str
) -> None:
    detokenizer = Detokenizer(tokenizer)
    pieces = [detokenizer.push(i) for i in tokenizer.encode_text(text).tolist()]
    assert "\ufffd" not in "".join(pieces)
    assert "".join(pieces) + detokenizer.finish() == text


def test_an_unfinished_character_is_replaced_only_at_the_end(tokenizer: Tokenizer) -> None:
    ids = tokenizer.encode_text("a👩").tolist()[:-1]
    detokenizer = Detokenizer(tokenizer)
    assert "".join(detokenizer.push(i) for i in ids) == "a"
    assert detokenizer.finish() == "\ufffd"


@pytest.mark.parametrize("seed", range(30))
def test_garbage_bytes_come_out_as_one_decoding_gives_them(tokenizer: Tokenizer, seed: int) -> None:
    source = random.Random(seed)
    pool = tokenizer.encode_text("é日👩a").tolist()
    ids = [source.choice(pool) for _ in range(200)]
    detokenizer = Detokenizer(tokenizer)
    text = "".join(detokenizer.push(i) for i in ids) + detokenizer.finish()
    assert text == tokenizer.decode(ids)


def test_endless_garbage_is_not_held_back(tokenizer: Tokenizer) -> None:
    continuation = int(tokenizer.encode_text("é")[1])
    detokenizer = Detokenizer(tokenizer)
    text = "".join(detokenizer.push(continuation) for _ in range(1000))
    assert len(text) > 980


def test_special_and_unknown_ids_have_no_text(tokenizer: Tokenizer) -> None:
    detokenizer = Detokenizer(tokenizer)
    assert [detokenizer.push(i) for i in (2, 300, 1)] == ["", "", ""]
    assert detokenizer.finish() == ""


@given(data=st.data())
@settings(
    max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_tokens_together_give_the_text_of_tokens_one_by_one(
    tokenizer: Tokenizer, data: st.DataObject
) -> None:
    texts = st.sampled_from(TEXTS).map(lambda text: tokenizer.encode_text(text).tolist())
    ids = data.draw(st.lists(st.integers(0, 319), max_size=40) | texts)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(ids)), max_size=6)))
    single, together = Detokenizer(tokenizer), Detokenizer(tokenizer)
    one_by_one = [single.push(token) for token in ids]
    rounds = [together.push_all(ids[a:b]) for a, b in pairwise([0, *cuts, len(ids)])]
    assert "".join(one_by_one) == "".join(rounds)
    assert single.finish() == together.finish()


def test_markup_that_is_a_special_token_is_text_in_an_output(
    tiny_model: Path, tmp_path: Path
) -> None:
    made = tokenizers.Tokenizer.from_file(str(tiny_model / "tokenizer.json"))
    made.add_special_tokens(["<tool_call>", "</tool_call>", "<|other|>"])
    made.save(str(tmp_path / "tokenizer.json"))
    tokenizer = Tokenizer.load(tmp_path)
    ids = tokenizer.encode_prompt("a<tool_call>b<|other|></tool_call>").tolist()
    assert len(ids) == 5
    detokenizer = Detokenizer(tokenizer)
    assert "".join(map(detokenizer.push, ids)) == "a<tool_call>b</tool_call>"
    # and in what a client says it is still no token
    assert not tokenizer.special_ids & set(tokenizer.encode_text("<tool_call>").tolist())
