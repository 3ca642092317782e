"""The tokenizer files of a model folder, built from a GGUF file's metadata."""

import json
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, processors

from services.engine.checkpoint.metadata import Metadata
from shared.errors import CheckpointError

CONTROL, USER_DEFINED = 3, 4  # of GGUF's token types: special, and added by the author

LLAMA3_WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def write_tokenizer(metadata: Metadata, folder: Path) -> None:
    """Writes tokenizer.json, tokenizer_config.json and chat_template.jinja (if there is one).

    Raises:
        CheckpointError: the vocabulary is of a kind that cannot be converted.
    """
    build(metadata).save(str(folder / "tokenizer.json"))
    tokens = metadata.strings("tokenizer.ggml.tokens")
    config: dict[str, Any] = {"tokenizer_class": "PreTrainedTokenizerFast"}
    for role, key in (("bos", "bos"), ("eos", "eos"), ("unk", "unknown"), ("pad", "padding")):
        index = metadata.optional_int(f"tokenizer.ggml.{key}_token_id")
        if index is not None:
            config[f"{role}_token"] = _at(tokens, index, f"{key}_token_id")
    config["add_bos_token"] = metadata.flag("tokenizer.ggml.add_bos_token")
    config["clean_up_tokenization_spaces"] = False
    config["model_max_length"] = metadata.int(f"{metadata.architecture}.context_length")
    template = metadata.optional_string("tokenizer.chat_template")
    if template is not None:
        config["chat_template"] = template
        (folder / "chat_template.jinja").write_text(template, encoding="utf-8")
    text = json.dumps(config, indent=2, ensure_ascii=False)
    (folder / "tokenizer_config.json").write_text(text + "\n", encoding="utf-8")


def build(metadata: Metadata) -> Tokenizer:
    """The byte-level BPE tokenizer.

    Raises:
        CheckpointError: not byte-level BPE, an unknown pre-tokenizer, or inconsistent lists.
    """
    kind = metadata.string("tokenizer.ggml.model")
    if kind != "gpt2":
        raise CheckpointError(f"the tokenizer model {kind} is not supported; gpt2 (BPE) is")
    tokens = metadata.strings("tokenizer.ggml.tokens")
    vocabulary = {token: index for index, token in enumerate(tokens)}
    if len(vocabulary) != len(tokens):
        raise CheckpointError("the vocabulary holds a token twice")
    merges = [_pair(line) for line in metadata.strings("tokenizer.ggml.merges")]
    # what a merge makes must be a token: the library would panic otherwise
    for left, right in merges:
        if not {left, right, left + right} <= vocabulary.keys():
            raise CheckpointError(f"the merge {left} {right} is not made of tokens")
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=merges))
    tokenizer.pre_tokenizer = _pre_tokenizer(metadata.string("tokenizer.ggml.pre"))
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_tokens(_added(tokens, metadata))
    if metadata.flag("tokenizer.ggml.add_bos_token"):
        index = metadata.int("tokenizer.ggml.bos_token_id")
        bos = _at(tokens, index, "bos_token_id")
        tokenizer.post_processor = processors.TemplateProcessing(
            single=f"{bos} $A", pair=f"{bos} $A {bos} $B:1", special_tokens=[(bos, index)]
        )
    return tokenizer


def _pre_tokenizer(name: str) -> Any:
    words = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    match name:
        case "smollm":
            digits = pre_tokenizers.Digits(individual_digits=True)
            return pre_tokenizers.Sequence([digits, words])
        case "gpt-2" | "gpt2" | "default":
            return words
        case "llama-bpe" | "llama3" | "llama-v3":
            split = pre_tokenizers.Split(Regex(LLAMA3_WORDS), "isolated")
            raw = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
            return pre_tokenizers.Sequence([split, raw])
        case _:
            raise CheckpointError(f"the pre-tokenizer {name} is not supported")


def _added(tokens: list[str], metadata: Metadata) -> list[AddedToken]:
    kinds = metadata.ints("tokenizer.ggml.token_type")
    if len(kinds) != len(tokens):
        raise CheckpointError(f"{len(tokens)} tokens have {len(kinds)} types")
    return [
        AddedToken(token, special=kind == CONTROL, normalized=False)
        for token, kind in zip(tokens, kinds, strict=True)
        if kind in (CONTROL, USER_DEFINED)
    ]


def _pair(line: str) -> tuple[str, str]:
    left, space, right = line.partition(" ")
    if not (left and space and right):
        raise CheckpointError(f"{line!r} is not a merge of two tokens")
    return left, right


def _at(tokens: list[str], index: int, key: str) -> str:
    if not 0 <= index < len(tokens):
        raise CheckpointError(f"{key} {index} is outside the vocabulary of {len(tokens)}")
    return tokens[index]
