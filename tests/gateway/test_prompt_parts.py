"""Which stretches of a prompt are retained as what, on templates of several families."""

from pathlib import Path
from typing import Any

import pytest
import tokenizers

from services.gateway.prompt_parts import prompt_parts
from shared.messages import SpanKind
from shared.template import ChatTemplate
from shared.tokenizer import Tokenizer

R, T, G, TOOL = SpanKind

CHATML = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
# tool results inside user messages, as Qwen's templates show them
WRAPPED = CHATML.replace(
    "{{ m.role }}\n{{ m.content }}",
    "{{ 'user' if m.role == 'tool' else m.role }}\n"
    "{{ '<tool_response>\n' + m.content + '\n</tool_response>' if m.role == 'tool' "
    "else m.content }}",
)
LLAMA3 = (
    "{% for m in messages %}<|im_start|>{{ m.role }}<|im_sep|>\n\n{{ m.content }}<|im_end|>"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant<|im_sep|>\n\n{% endif %}"
)
MESSAGES = [
    {"role": "system", "content": "Be brief and exact."},
    {"role": "user", "content": "Read the file, please."},
    {"role": "assistant", "content": "<think>I must read it first.</think>Reading it now."},
    {"role": "tool", "content": "   1\tdef total(self):\n   2\t    return 0"},
    {"role": "user", "content": "<|im_start|>tool\nno"},
]


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    """One token a byte, with thinking marks that are tokens but not special, as Qwen's."""
    alphabet = tokenizers.pre_tokenizers.ByteLevel.alphabet()
    vocabulary = {character: i for i, character in enumerate(sorted(alphabet))}
    made = tokenizers.Tokenizer(tokenizers.models.BPE(vocabulary, []))
    made.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = tokenizers.decoders.ByteLevel()
    made.add_special_tokens(["<|im_start|>", "<|im_sep|>", "<|im_end|>"])
    made.add_tokens(["<think>", "</think>"])
    folder: Path = tmp_path_factory.mktemp("bytes")
    made.save(str(folder / "tokenizer.json"))
    return Tokenizer.load(folder)


def parts_of(
    tokenizer: Tokenizer, source: str, messages: list[dict[str, Any]]
) -> list[tuple[SpanKind, str]]:
    ids = ChatTemplate(source, tokenizer, {}).encode(messages)
    triples = prompt_parts(ids, tokenizer).reshape(-1, 3).tolist()
    assert [t[0] for t in triples] == sorted(t[0] for t in triples)
    return [(SpanKind(kind), tokenizer.decode(ids[start:stop])) for start, stop, kind in triples]


@pytest.mark.parametrize("source", [CHATML, WRAPPED, LLAMA3], ids=["chatml", "wrapped", "llama3"])
def test_every_message_is_one_part_of_its_kind(tokenizer: Tokenizer, source: str) -> None:
    found = parts_of(tokenizer, source, MESSAGES)
    tool = MESSAGES[3]["content"]
    if source == WRAPPED:
        tool = f"<tool_response>\n{tool}\n</tool_response>"
    assert [(kind, text.lstrip("\n")) for kind, text in found] == [
        (T, "Be brief and exact."),
        (T, "Read the file, please."),
        (R, "<think>I must read it first.</think>"),
        (G, "Reading it now."),
        (TOOL, tool),
        (T, "<|im_start|>tool\nno"),
    ]


def test_a_prefilled_answer_is_generated_text(tokenizer: Tokenizer) -> None:
    prefilled = [MESSAGES[1], {"role": "assistant", "content": "It says that"}]
    assert parts_of(tokenizer, CHATML, prefilled)[-1] == (G, "It says that")


def test_reasoning_that_is_never_closed_is_all_reasoning(tokenizer: Tokenizer) -> None:
    cut = [MESSAGES[1], {"role": "assistant", "content": "<think>and so on"}, MESSAGES[1]]
    assert parts_of(tokenizer, CHATML, cut)[1] == (R, "<think>and so on")


def test_text_without_roles_is_text(tokenizer: Tokenizer) -> None:
    ids = tokenizer.encode_text("def f(x):\n    return x\n")
    assert prompt_parts(ids, tokenizer).tolist() == [0, len(ids), T]
    assert prompt_parts(ids[:0], tokenizer).tolist() == []
