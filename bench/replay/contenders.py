"""Who takes part: the peers, ninfer's fixed and adaptive policies, the hindsight oracle."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from bench.replay.neural import CoinDrafter
from bench.replay.oracle import HindsightOracle
from bench.replay.ours import NinferDrafter, SourceBuilder
from bench.replay.peers import Drafter, LlamaMod, LlamaSimple, PromptLookup, VllmNgram
from bench.replay.suffix import ArcticSuffix, SuffixDecoding
from bench.replay.tasks import Task
from services.engine.drafting.settings import DraftSettings

NEURAL_TOKENS = 3
WIDTHS = (15, 63)
# What a column costs beside a pass's first, in passes.
COLUMN_COSTS = (0.002, 0.007, 0.02, 0.05)


@dataclass(frozen=True)
class Contender:
    drafter: Drafter
    width: int
    role: str  # peer, ninfer or oracle
    neural: bool = False
    tuned_for: float | None = None  # the column cost that an adaptive drafter was told


class OracleOverSources:
    """The oracle over the sources that ninfer's drafters have."""

    def __init__(self, sources: SourceBuilder, width: int) -> None:
        self._sources = sources
        self._oracle = HindsightOracle(width)
        self.name = self._oracle.name

    def begin(self, task: Task) -> None:
        self._oracle.begin_with(task, self._sources.beside_prompt(task))

    def propose(self, ids: np.ndarray, room: int) -> Sequence[int]:
        return self._oracle.propose(ids, room)

    def observe(self, ids: np.ndarray, drafted: int, accepted: int) -> None:
        """It knows."""


def contenders(sources: SourceBuilder, special_ids: frozenset[int]) -> list[Contender]:
    entries = list(_peers())
    for width in WIDTHS:
        settings = DraftSettings(
            policy="fixed", width=width, min_match=12, boundary_ids=special_ids
        )
        fixed = NinferDrafter(sources, settings, width)
        entries.append(Contender(fixed, width, "ninfer"))
        entries.append(Contender(OracleOverSources(sources, width), width, "oracle"))
    entries += _stacked_peers()
    entries += _adaptive(sources, special_ids)
    return entries


def _adaptive(sources: SourceBuilder, special_ids: frozenset[int]) -> Iterator[Contender]:
    """The policy knows what a column costs, as the engine measures it at warm-up."""
    for neural_tokens in (0, NEURAL_TOKENS):
        for width in WIDTHS:
            settings = DraftSettings(
                policy="adaptive",
                width=width,
                min_match=1,
                boundary_ids=special_ids,
                neural_width=neural_tokens,
            )
            for cost in COLUMN_COSTS:
                coin = CoinDrafter(neural_tokens) if neural_tokens else None
                drafter = NinferDrafter(sources, settings, width, column_cost=cost, neural=coin)
                yield Contender(drafter, width, "ninfer", neural=coin is not None, tuned_for=cost)


def _stacked_peers() -> Iterator[Contender]:
    """In rounds without a copy they run the neural drafter."""
    for width in WIDTHS:
        yield Contender(VllmNgram(width), width, "peer", neural=True)
        for least_score in (0.0, float(NEURAL_TOKENS)):
            suffix = SuffixDecoding(width, least_score=least_score)
            yield Contender(suffix, width, "peer", neural=True)


def _peers() -> Iterator[Contender]:
    yield Contender(PromptLookup(), 10, "peer")
    for width in (15, 31, 63):
        yield Contender(VllmNgram(width), width, "peer")
    yield Contender(LlamaSimple(), 48, "peer")
    yield Contender(LlamaMod(), 64, "peer")
    for width in WIDTHS:
        yield Contender(SuffixDecoding(width), width, "peer")
        if ArcticSuffix.is_installed():
            yield Contender(ArcticSuffix(width), width, "peer")
