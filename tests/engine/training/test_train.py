"""`ninfer-train mtp` on a tiny model: what it writes, what it learns, how it goes on."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from services.engine.batch import RowSpan
from services.engine.kv import KvCache
from services.engine.models.llama import LlamaModel
from services.engine.models.mtp import MtpModule
from services.engine.models.tiny import write_tiny, write_tiny_mtp
from services.engine.models.weights import Weights
from services.engine.training import cli, trainer
from services.engine.training.acceptance import Acceptance
from services.engine.training.cli import main
from services.engine.training.corpus import ANSWER, FORCED, USER, Corpus, looping
from services.engine.training.dialogue import Dialogue
from services.engine.training.documentation import FORMS, beginnings, named
from services.engine.training.module import TrainableMtp
from services.engine.training.recipe import Recipe
from services.engine.training.trainer import Trainer
from services.engine.training.writer import Writer
from shared.template import ChatTemplate
from shared.tokenizer import Tokenizer
from tests.engine.models.oracle import random_ids, relative_error, run

RECIPE = Recipe(
    rows=24,
    row_tokens=96,
    heldout=4,
    writing=8,
    user_tokens=12,
    openings=8,
    answer_tokens=40,
    epochs=12,
    batch=4,
    shortlist=200,
    learning_rate=3e-3,
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("train") / "model"
    write_tiny(folder, seed=3)
    return folder


@pytest.fixture(scope="module")
def corpus(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    return written(folder, tmp_path_factory.mktemp("text"))


def bf16(folder: Path) -> LlamaModel:
    return LlamaModel.load(folder, dtype=torch.bfloat16, device=torch.device("cpu"), exact=False)


def dialogue(folder: Path) -> Dialogue:
    return Dialogue.of(ChatTemplate.load(folder, Tokenizer.load(folder)))


def written(folder: Path, work: Path, *, stops_after: int | None = None) -> Corpus:
    """All rows; or it is stopped and goes on with a new process's objects."""
    for limit in (stops_after, None):
        recipe = RECIPE if limit is None else dataclasses.replace(RECIPE, rows=limit)
        corpus = Corpus(work, RECIPE, 64)
        Writer(bf16(folder), dialogue(folder), recipe).fill(corpus, lambda _: None)
    return corpus


def command(folder: Path, work: Path, *more: str) -> list[str]:
    flags = [
        f"--{name.replace('_', '-')}={value}" for name, value in dataclasses.asdict(RECIPE).items()
    ]
    out = work / "mtp.safetensors"
    return ["mtp", str(folder), "--work", str(work), f"--out={out}", "--threads=1", *flags, *more]


def test_every_row_is_a_conversation_in_the_models_template(folder: Path, corpus: Corpus) -> None:
    parts = dialogue(folder)
    for ids, roles in zip(corpus.ids, corpus.roles, strict=True):
        assert tuple(ids[: len(parts.opening)]) == parts.opening
        assert set(roles[: len(parts.opening)]) == {FORCED}
        for turn, limit, end in (
            (USER, RECIPE.user_tokens, parts.to_answer),
            (ANSWER, RECIPE.answer_tokens, parts.to_user),
        ):
            for first, last in stretches(roles == turn):
                # the model may end its turn itself, with the first token of what follows
                own_end = ids[last] == end[0]
                assert last + 1 - first - own_end <= limit
                behind = ids[last + (not own_end) :][: len(end)]
                assert tuple(behind) == end[: len(behind)]


def test_even_rows_hold_the_models_own_greedy_choice(folder: Path, corpus: Corpus) -> None:
    model = bf16(folder)
    kv = KvCache(
        model.config, slots=1, max_context=96, dtype=model.dtype, device=torch.device("cpu")
    )
    for row in (0, 6):
        ids = torch.from_numpy(corpus.ids[row].copy()).long()
        result = run(model, kv, (0, 0, ids))
        recorded = corpus.hidden(np.array([row]))[0]
        assert relative_error(result.hidden, recorded) < 0.02  # bf16, other orders of summation
        says = model.head(recorded).argmax(-1)[:-1]
        free = torch.from_numpy(corpus.roles[row] == ANSWER)[1:]
        assert free.sum() >= 10
        assert torch.equal(says[free], ids[1:][free])


def test_three_questions_of_four_begin_with_one_of_the_likeliest_tokens(
    folder: Path, corpus: Corpus
) -> None:
    opening = dialogue(folder).opening
    ids, hidden = corpus.ids, corpus.hidden(np.arange(RECIPE.rows))
    behind = hidden[0, len(opening) - 1]
    likeliest = bf16(folder).head(behind[None])[0].topk(RECIPE.openings).indices.tolist()
    first = ids[:, len(opening)]
    opened = np.isin(first, likeliest)
    assert 0.6 < opened.mean() < 0.95  # of a random model's own accord it would be a few percent
    assert len(set(first[opened].tolist())) >= 6
    assert opened.tolist() != [True] * RECIPE.rows


@pytest.mark.parametrize("percent", [0, 50, 100])
def test_so_many_questions_begin_as_the_documentation_does(
    folder: Path, tmp_path: Path, percent: int
) -> None:
    recipe = dataclasses.replace(RECIPE, rows=32, writing=16, documentation=percent)
    parts, begun = dialogue(folder), [[101, 102, 103, 104], [105, 106]]
    corpus = Corpus(tmp_path, recipe, 64)
    Writer(bf16(folder), parts, recipe, begun).fill(corpus, lambda _: None)
    counts = {True: 0, False: 0}
    for ids, roles in zip(corpus.ids, corpus.roles, strict=True):
        for start in [len(parts.opening), *behind(ids, parts.to_user)]:
            asked, chosen = ids[start:], roles[start:]
            given = [b for b in begun if asked[: len(b)].tolist() == b]
            counts[bool(given)] += 1
            if given:  # not the model's words, and part of the longest question
                length = len(given[0])
                assert set(chosen[:length]) == {FORCED}
                own = chosen[length:]
                stop = np.flatnonzero(own != USER)
                assert len(stop)
                assert stop[0] <= RECIPE.user_tokens - length + 1
    share = counts[True] / sum(counts.values())
    assert abs(share - percent / 100) < (0.25 if percent == 50 else 0.01)


def test_beginnings_are_forms_with_things_that_docstrings_name(tmp_path: Path) -> None:
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "left_out.py").write_text('"""A test of a pump."""')
    (tmp_path / "broken.py").write_text("print 'a valve'")
    (tmp_path / "engine.py").write_text(
        '"""Runs a motor; 4 of them need an axle."""\nclass Wheel:\n    """A wheel of a cart."""\n'
        'def turn():\n    # not a comment\n    "Gives an angle."\n    return "a word"\n'
    )
    assert sorted(set(named(tmp_path))) == ["a cart", "a motor", "an angle", "an axle"]
    found = beginnings(tmp_path)
    assert len(found) == len(set(found)) == 4 * len(FORMS)
    assert "What is an axle" in found


def test_the_standard_library_names_enough_to_ask_about() -> None:
    assert len(beginnings()) > 500 * len(FORMS)


def test_text_that_was_interrupted_goes_on_as_it_would_have(
    folder: Path, corpus: Corpus, tmp_path: Path
) -> None:
    resumed = written(folder, tmp_path, stops_after=16)
    assert np.array_equal(resumed.ids, corpus.ids)
    assert np.array_equal(resumed.roles, corpus.roles)


def test_unrolled_steps_are_those_of_a_round(folder: Path, corpus: Corpus) -> None:
    """Step 0 over the whole text, then a chain of drafts behind its last column."""
    write_tiny_mtp(folder, seed=2)
    weights = Weights(folder)
    model = LlamaModel.load(folder, dtype=torch.float32, device=torch.device("cpu"))
    kv = KvCache(
        model.config,
        slots=1,
        max_context=96,
        dtype=torch.float32,
        device=torch.device("cpu"),
        drafter_layers=1,
    )
    ids = random_ids(44, 320)
    hidden = run(model, kv, (0, 0, ids)).hidden
    embedded = model.embedding[ids]
    trainable = TrainableMtp(model.config, load_file(folder / "mtp.safetensors"))
    unrolled = [m[0] for m in trainable.unroll(embedded[None], hidden[None], 3)]
    engine = MtpModule(model, weights, shortlist=False)
    last = 40  # its chain reads the tokens at 41, 42 and 43
    first = engine.step(
        hidden[: last + 1], ids[1 : last + 2], (RowSpan(0, 0, last + 1, 0),), kv.layers[-1]
    )
    state = first[-1:]
    assert relative_error(unrolled[0][: last + 1].detach(), first) < 0.02  # bf16 products
    for depth in (1, 2):
        token = ids[last + 1 + depth : last + 2 + depth]
        state = engine.step(state, token, (RowSpan(0, last + depth, 1, 0),), kv.layers[-1])
        assert relative_error(unrolled[depth][last].detach(), state[0]) < 0.02
    (folder / "mtp.safetensors").unlink()


def test_training_finds_what_an_untrained_drafter_does_not(
    folder: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(trainer, "SAVE_STEPS", 20)
    assert main(command(folder, tmp_path)) == 0
    lines = capsys.readouterr().err.splitlines()
    shown = [line for line in lines if "tokens/round" in line]
    assert shown[0].startswith("untrained")
    losses = losses_of("\n".join(lines))
    assert losses[-1] < losses[0]
    tensors = load_file(tmp_path / "mtp.safetensors")
    assert len(tensors) == 14  # fc, 3 norms, 9 of the layer, the shortlist
    assert {t.dtype for n, t in tensors.items() if n != "mtp.shortlist_ids"} == {torch.bfloat16}


def test_an_interrupted_run_gives_the_weights_of_an_uninterrupted_one(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trainer, "SAVE_STEPS", 25)
    assert main(command(folder, tmp_path / "whole")) == 0
    learn = Trainer._learn

    def breaks_down(self: Trainer, rows: np.ndarray) -> float:
        if self.step == 55:
            raise KeyboardInterrupt
        return learn(self, rows)

    monkeypatch.setattr(Trainer, "_learn", breaks_down)
    assert main(command(folder, tmp_path / "broken")) == 130
    monkeypatch.setattr(Trainer, "_learn", learn)
    assert main(command(folder, tmp_path / "broken")) == 0
    whole, broken = (load_file(tmp_path / w / "mtp.safetensors") for w in ("whole", "broken"))
    assert all(torch.equal(whole[name], broken[name]) for name in whole)


def test_training_goes_on_from_a_drafter_that_was_trained_before(
    folder: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(trainer, "SAVE_STEPS", 20)
    first, second = tmp_path / "first", tmp_path / "second"
    assert main(command(folder, first)) == 0
    losses = [losses_of(capsys.readouterr().err)]
    start = f"--start={first / 'mtp.safetensors'}"
    more = ("--epochs=4", "--seed=1")
    assert main(command(folder, second, start, *more)) == 0
    said = capsys.readouterr().err
    assert "at the start" in said
    losses.append(losses_of(said))
    assert losses[1][0] < losses[0][0]
    # the same folder does not go on from elsewhere
    assert main(command(folder, second, *more)) == 1
    assert "holds another run" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("tensors", "sentence"),
    [
        (None, "is missing"),
        ({"mtp.norm.weight": torch.ones(64)}, "has no tensor mtp.fc.weight"),
        ({"mtp.fc.weight": torch.ones(3, 6)}, "mtp.fc.weight is [3, 6], not [64, 128]"),
    ],
)
def test_a_start_that_does_not_fit_the_model_is_refused(
    folder: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    tensors: dict[str, torch.Tensor] | None,
    sentence: str,
) -> None:
    start = tmp_path / "start.safetensors"
    if tensors is not None:
        save_file(tensors, start)
    assert main(command(folder, tmp_path / "work", f"--start={start}")) == 1
    assert sentence in capsys.readouterr().err


def test_text_begun_with_other_documentation_does_not_go_on(
    folder: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    more = ("--documentation=50", "--epochs=1")
    monkeypatch.setattr(cli, "beginnings", lambda: ["Explain a fork", "Why is a spoon"])
    assert main(command(folder, tmp_path, *more)) == 0
    monkeypatch.setattr(cli, "beginnings", lambda: ["Explain a fork", "Why is a knife"])
    assert main(command(folder, tmp_path, *more)) == 1
    assert "holds another run" in capsys.readouterr().err


def test_a_work_folder_of_another_recipe_is_refused(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "recipe.json").write_text("{}")
    assert main(command(folder, tmp_path)) == 1
    assert "holds another run" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("flag", "sentence"),
    [
        ("--rows=6", "leaves no batch"),
        ("--row-tokens=10", "use at least 64"),
        ("--epochs=0", "use at least 1"),
        ("--documentation=101", "is more than 100 percent"),
    ],
)
def test_recipes_that_cannot_work_are_refused(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], flag: str, sentence: str
) -> None:
    assert main(command(folder, tmp_path, flag)) == 1
    assert sentence in capsys.readouterr().err


def test_a_folder_without_a_model_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["mtp", str(tmp_path / "nope"), "--work", str(tmp_path)]) == 1
    assert f"{tmp_path / 'nope'} holds no config.json" in capsys.readouterr().err


def test_acceptance_counts_rounds_not_positions() -> None:
    found = Acceptance(2)
    learnable = np.array([False, True, True, True, True, True, True, True, True])
    right = np.zeros((2, 9), dtype=bool)
    right[0, 1] = right[1, 2] = True  # the round at 1 accepts both: 3 tokens
    right[0, 4] = True  # the round at 4 accepts one: 2 tokens; the one at 6 none
    found.walk(learnable, right)
    assert (found.rounds, found.tokens, found.by_depth) == (3, 6, [0.667, 0.333])


def test_a_loop_is_found_from_its_second_time_around_on() -> None:
    ids = np.array([*range(20), *range(14), 99], dtype=np.int32)
    assert np.flatnonzero(looping(ids)).tolist() == [31, 32, 33]


def behind(ids: np.ndarray, end: tuple[int, ...]) -> list[int]:
    """Places where `end` is over, with room for a question and its end."""
    last = len(ids) - RECIPE.user_tokens - len(end) - 2
    return [p + len(end) for p in range(last) if tuple(ids[p : p + len(end)]) == end]


def losses_of(said: str) -> list[float]:
    return [float(part.split()[0]) for part in said.split(" loss ")[1:]]


def stretches(mask: np.ndarray) -> list[tuple[int, int]]:
    """First and last place of each run that ends before the row does."""
    edges = np.flatnonzero(np.diff(np.concatenate(([0], mask.astype(int), [0]))))
    pairs = zip(edges[::2].tolist(), (edges[1::2] - 1).tolist(), strict=True)
    return [(first, last) for first, last in pairs if last < len(mask) - 1]
