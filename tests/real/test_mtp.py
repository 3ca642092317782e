"""Neural rounds never change the text: the demo model with its own drafter.

The exactness matrix, then the life of requests around a drafter that keeps a history of its own.
`NINFER_NGRAM_TEST_WEIGHTS` names another model folder, which must hold a drafter too.
"""

from pathlib import Path

import numpy as np
import pytest
import torch

from services.engine.drafting.settings import Policy
from services.engine.models.mtp import has_mtp
from services.engine.models.weights import Weights
from services.engine.post import FromGateway
from services.engine.probe import is_exact
from shared.messages import Cancel, Finished
from shared.template import ChatTemplate
from tests.engine.conversation import Conversation, tokens_of
from tests.engine.local import LocalEngine, Output, generate
from tests.real.prompts import PROMPTS, Prompt

pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]

OUTPUT_TOKENS = 24
K = 3
# copies off, 15 and 63 wide
STACKED: tuple[tuple[int, Policy], ...] = ((0, "fixed"), (15, "fixed"), (63, "adaptive"))
CHOSEN = [
    prompt
    for prompt in PROMPTS
    if prompt.name in ("config_copy", "numbered_config", "list_copy", "story", "function")
]


def with_drafter(folder: Path, dtype: torch.dtype) -> LocalEngine:
    if not has_mtp(Weights(folder)):
        pytest.fail(f"{folder} has no drafter; `make setup` puts it there", pytrace=False)
    return LocalEngine(folder, dtype=dtype, mtp=True)


@pytest.fixture(scope="module")
def engine(ngram_model: Path) -> LocalEngine:
    return with_drafter(ngram_model, torch.float32)


@pytest.fixture(scope="module")
def bf16(ngram_model: Path) -> LocalEngine:
    engine = with_drafter(ngram_model, torch.bfloat16)
    if not is_exact(engine.model, engine.kv):
        pytest.skip("this machine's kernels round differently at different widths")
    return engine


class Undrafted:
    """What `engine` says without drafts; asked for once, compared with many times."""

    def __init__(self, engine: LocalEngine) -> None:
        self._engine = engine
        self._said: dict[tuple[bytes, float], list[int]] = {}

    def __call__(self, prompt_ids: np.ndarray, temperature: float = 0.0) -> list[int]:
        """`OUTPUT_TOKENS` of them."""
        key = (prompt_ids.tobytes(), temperature)
        if key not in self._said:
            output = run(self._engine, prompt_ids, draft_tokens=0, temperature=temperature)
            self._said[key] = output.token_ids
        return self._said[key]


@pytest.fixture(scope="module")
def plain(engine: LocalEngine) -> Undrafted:
    return Undrafted(engine)


@pytest.fixture(scope="module")
def template(ngram_model: Path, engine: LocalEngine) -> ChatTemplate:
    return ChatTemplate.load(ngram_model, engine.tokenizer)


def tool_texts(prompts: list[Prompt]) -> list[str]:
    return [m["content"] for p in prompts for m in p.messages if m["role"] == "tool"]


def run(
    engine: LocalEngine,
    prompt_ids: np.ndarray,
    *,
    width: int = 0,
    draft_tokens: int = K,
    temperature: float = 0.0,
    policy: Policy = "fixed",
    texts: tuple[str, ...] = (),
    output: int = OUTPUT_TOKENS,
) -> Output:
    request = generate("r", prompt_ids, output=output, temperature=temperature)
    return engine.run(
        [request], width=width, draft_tokens=draft_tokens, policy=policy, tool_texts=texts
    )["r"]


@pytest.mark.parametrize("prompt", CHOSEN, ids=lambda p: p.name)
@pytest.mark.parametrize("temperature", [0.0, 0.8], ids=["greedy", "seeded"])
def test_output_is_the_same_with_neural_drafts_beside_copies_of_any_width(
    engine: LocalEngine,
    plain: Undrafted,
    template: ChatTemplate,
    prompt: Prompt,
    temperature: float,
) -> None:
    prompt_ids = template.encode(prompt.messages)
    texts = tuple(tool_texts([prompt]))
    for width, policy in STACKED:
        drafted = run(
            engine, prompt_ids, width=width, temperature=temperature, policy=policy, texts=texts
        )
        assert drafted.token_ids == plain(prompt_ids, temperature)
        if not width:
            assert drafted.neural.rounds > 0
            # a file in an answer's middle is not what it was trained on
            assert drafted.neural.accepted_tokens > 0 or prompt.copies


@pytest.mark.parametrize("temperature", [0.0, 0.8], ids=["greedy", "seeded"])
def test_output_is_the_same_beside_other_requests(
    engine: LocalEngine, plain: Undrafted, template: ChatTemplate, temperature: float
) -> None:
    group = CHOSEN[1:4]
    prompt_ids = {p.name: template.encode(p.messages) for p in group}
    alone = {name: plain(ids, temperature) for name, ids in prompt_ids.items()}
    requests = [
        generate(name, ids, output=OUTPUT_TOKENS, temperature=temperature)
        for name, ids in prompt_ids.items()
    ]
    for width, policy in STACKED:
        together = engine.run(
            requests, width=width, draft_tokens=K, policy=policy, tool_texts=tool_texts(group)
        )
        assert {name: output.token_ids for name, output in together.items()} == alone


@pytest.mark.parametrize("temperature", [0.0, 0.8], ids=["greedy", "seeded"])
def test_bf16_output_is_the_same_where_the_kernels_allow_it(
    bf16: LocalEngine, template: ChatTemplate, temperature: float
) -> None:
    for prompt in (CHOSEN[0], CHOSEN[3]):
        prompt_ids = template.encode(prompt.messages)
        said = run(bf16, prompt_ids, draft_tokens=0, temperature=temperature).token_ids
        for width, draft_tokens in ((0, 15), (63, K)):
            drafted = run(
                bf16,
                prompt_ids,
                width=width,
                draft_tokens=draft_tokens,
                temperature=temperature,
                policy="adaptive",
            )
            assert drafted.token_ids == said


def test_an_answer_takes_fewer_passes_than_tokens(
    engine: LocalEngine, template: ChatTemplate
) -> None:
    prompt_ids = template.encode([{"role": "user", "content": "Why do leaves fall in autumn?"}])
    output = run(engine, prompt_ids, output=64)
    assert output.stats.decode_passes < 0.8 * len(output.token_ids)
    assert output.stats.speculative.accepted_per_position[:2] > (0, 0)


@pytest.mark.parametrize("budget", [1, 2])
def test_the_last_output_token_is_never_drafted(
    engine: LocalEngine, template: ChatTemplate, budget: int
) -> None:
    output = run(engine, template.encode(CHOSEN[0].messages), width=63, output=budget)
    assert len(output.token_ids) == budget
    assert output.stats.speculative.drafted_tokens == 0


@pytest.mark.parametrize(("host_blocks", "source"), [(0, "slot"), (64, "host")])
def test_the_next_turn_drafts_as_if_all_had_been_computed(
    engine: LocalEngine, template: ChatTemplate, host_blocks: int, source: str
) -> None:
    """Turns of 64 tokens and more, so that whole and partial blocks are reused."""
    others = [p for p in PROMPTS if p.name in ("list_continuation", "fruits", "question")]
    conversation = Conversation(engine, host_blocks=host_blocks, width=0, draft_tokens=K)
    messages = list(CHOSEN[3].messages)
    for turn in range(3):
        prompt_ids = template.encode(messages)
        said, stats = conversation.ask(generate(f"t{turn}", prompt_ids, output=40))[0]
        fresh = run(engine, prompt_ids, output=40)
        assert said == fresh.token_ids
        assert stats.speculative.accepted_tokens == fresh.stats.speculative.accepted_tokens
        assert stats.cached_from == (source if turn else "none")
        if host_blocks:  # others take all slots over
            conversation.ask(
                *(
                    generate(f"o{turn}.{n}", template.encode(prompt.messages), output=2)
                    for n, prompt in enumerate((*others, *others))
                )
            )
        text = engine.tokenizer.decode(said)
        messages += [
            {"role": "assistant", "content": text},
            {"role": "user", "content": "Go on with the story."},
        ]


def test_cancelled_and_queued_requests_disturb_nobody(
    engine: LocalEngine, plain: Undrafted, template: ChatTemplate
) -> None:
    prompt_ids = [template.encode(p.messages) for p in CHOSEN]
    alone = [plain(ids) for ids in prompt_ids]
    local, post, limits = engine.engine(15, chunk=64, draft_tokens=K)
    for n, ids in enumerate(prompt_ids):  # four run, two wait
        post.inbound.append(FromGateway(b"g", generate(f"r{n}", ids, output=OUTPUT_TOKENS)))
    for turn in range(600):
        local.turn(limits)
        local.check()
        if turn == 14:
            post.inbound.append(FromGateway(b"g", Cancel(request_id="r1")))
        if sum(isinstance(m, Finished) for m in post.sent) == len(prompt_ids):
            break
    for n, expected in enumerate(alone):
        said = tokens_of(post, f"r{n}")
        assert said == (expected if n != 1 else expected[: len(said)])


def test_a_context_that_fills_up_ends_the_answer_at_the_same_token(
    ngram_model: Path, template: ChatTemplate
) -> None:
    prompt_ids = template.encode(CHOSEN[3].messages)
    small = LocalEngine(ngram_model, slots=1, context=len(prompt_ids) + 21, mtp=True)
    plain = run(small, prompt_ids, draft_tokens=0, output=100)
    for draft_tokens in (K, 15):
        drafted = run(small, prompt_ids, width=15, draft_tokens=draft_tokens, output=100)
        assert drafted.token_ids == plain.token_ids
        assert isinstance(drafted.end, Finished)
        assert drafted.end.reason == "context"
