"""The drafter's history is the same however the columns came: one by one, in copies, in chunks."""

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import pytest
import torch

from services.engine.drafting.neural import NeuralAsk
from services.engine.kv import KvCache
from services.engine.ledger import Ledger
from services.engine.models.mtp import MtpModule
from services.engine.models.tiny import write_tiny, write_tiny_mtp
from services.engine.models.weights import Weights
from services.engine.mtp_drafter import BULK_COLUMNS, MtpDrafter
from tests.engine.models.oracle import CPU, load, random_ids, relative_error, run

TOKENS = 150
ALL = TOKENS - 1  # columns whose next token is known


class History:
    """One text in slot 1, of which the target has computed everything."""

    def __init__(self, folder: Path) -> None:
        model = load(folder)
        self.kv = KvCache(
            model.config,
            slots=2,
            max_context=256,
            dtype=torch.float32,
            device=CPU,
            drafter_layers=1,
        )
        self.ids = random_ids(TOKENS, model.config.vocab_size)
        self.hidden = run(model, self.kv, (1, 0, self.ids)).hidden
        module = MtpModule(model, Weights(folder), shortlist=False)
        self.drafter = MtpDrafter(module, self.kv, width=5, device=CPU)
        self.ledger = Ledger(self.ids.numpy(), 8)

    def follow(self, *cuts: int, start: int = 0) -> None:
        for first, end in pairwise((start, *cuts)):
            hidden = self.hidden[first:end]
            self.drafter.follow("r", 1, self.ledger, start=first, hidden=hidden)

    def drafts(self) -> list[int]:
        return self.drafter.draft([NeuralAsk("r", self.ledger, 5)])[0]

    def values(self) -> torch.Tensor:
        """A draft has been made, so that all columns are in place."""
        return self.kv.layers[-1].values[1, :, :ALL].clone()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model") / "tiny"
    write_tiny(folder)
    write_tiny_mtp(folder, seed=1)
    return folder


@pytest.mark.parametrize(
    "cuts",
    [
        range(1, ALL + 1),
        (16, 32, 48, 60, ALL),
        (BULK_COLUMNS - 1, ALL),
        (BULK_COLUMNS, BULK_COLUMNS + 1, ALL),
        (100, 104, 105, 121, ALL - 1, ALL),
    ],
    ids=["one by one", "copies", "short of bulk", "bulk", "mixed"],
)
def test_the_same_drafts_follow_whatever_the_rounds_were(folder: Path, cuts: Sequence[int]) -> None:
    whole, pieces = History(folder), History(folder)
    whole.follow(ALL)
    pieces.follow(*cuts)
    assert pieces.drafts() == whole.drafts()
    assert relative_error(pieces.values(), whole.values()) < 1e-5


@pytest.mark.parametrize("at", [1, 30, 64, 100, ALL - 1])
def test_drafts_that_were_made_on_the_way_leave_no_trace(folder: Path, at: int) -> None:
    """Their keys and values lie where later columns belong, and are overwritten."""
    whole, pieces = History(folder), History(folder)
    whole.follow(ALL)
    pieces.follow(at)
    pieces.drafts()
    pieces.follow(ALL, start=at)
    assert pieces.drafts() == whole.drafts()
    assert relative_error(pieces.values(), whole.values()) < 1e-5


def test_settling_makes_the_slot_whole_and_changes_no_draft(folder: Path) -> None:
    whole, settled = History(folder), History(folder)
    whole.follow(ALL)
    settled.follow(40, 70, ALL)
    settled.drafter.settle("r")
    before = settled.values()
    assert settled.drafts() == whole.drafts()
    assert relative_error(before, whole.values()) < 1e-5


def test_what_a_stop_string_cut_off_is_not_history(folder: Path) -> None:
    history = History(folder)
    history.ledger = Ledger(history.ids[:60].numpy(), 100)
    history.ledger.append(history.ids[60:100].tolist())
    history.follow(50, 99)
    history.ledger.truncate_output(5)  # 65 tokens are left, columns up to 63 have a next one
    history.drafter.settle("r")
    whole = History(folder)
    whole.follow(ALL)
    whole.drafts()
    assert relative_error(history.values()[:, :64], whole.values()[:, :64]) < 1e-5


def test_nothing_is_drafted_twice_from_the_same_columns(folder: Path) -> None:
    history = History(folder)
    history.follow(ALL)
    assert len(history.drafts()) == 5
    assert history.drafts() == []


def test_columns_may_not_be_left_out(folder: Path) -> None:
    history = History(folder)
    history.follow(10)
    with pytest.raises(AssertionError, match="skips from 10 to 12"):
        history.follow(20, start=12)
