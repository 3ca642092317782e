"""ninfer's own drafters, driven as the engine drives them: the product's code, no copy of it."""

import threading
from collections.abc import Sequence

import numpy as np

from bench.replay.neural import CoinDrafter
from bench.replay.tasks import Task
from services.engine.drafting.cost import RoundCost
from services.engine.drafting.draft import Draft
from services.engine.drafting.neural import NeuralAsk
from services.engine.drafting.router import DraftRouter
from services.engine.drafting.settings import DraftSettings
from services.engine.ledger import Ledger
from services.engine.tally import Tally
from services.indexer.builder import Builder
from shared.messages import BuildIndex, IndexReady
from shared.tokenizer import Tokenizer

MAX_CONTEXT = 65_536
REQUEST = "replay"


class SourceBuilder:
    """The indexer's part, done once a task: every drafter gets the same sources."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._builder = Builder(tokenizer, MAX_CONTEXT)
        self._built: tuple[str, tuple[IndexReady, ...]] | None = None

    def build(self, task: Task) -> tuple[IndexReady, ...]:
        if self._built is None or self._built[0] != task.name:
            message = BuildIndex(
                request_id=REQUEST,
                prompt_ids=task.prompt_ids,
                tool_texts=task.tool_texts,
                predicted=None,
            )
            parts = tuple(self._builder.build(message, threading.Event()))
            self._built = (task.name, parts)
        return self._built[1]

    def beside_prompt(self, task: Task) -> list[np.ndarray]:
        """What was derived from the prompt stands behind it in the same source."""
        found = []
        for source in (source for part in self.build(task) for source in part.sources):
            if source.kind != "prompt":
                found.append(source.tokens)
            found += [source.tokens[s.start : s.stop] for s in source.spans if s.kind == "derived"]
        return found


class NinferDrafter:
    """The engine's router on one request after another; `neural` competes inside it."""

    def __init__(
        self,
        sources: SourceBuilder,
        settings: DraftSettings,
        width: int,
        *,
        column_cost: float = 0.007,
        neural: CoinDrafter | None = None,
    ) -> None:
        self.name = f"ninfer {settings.policy} {settings.min_match}/{width}"
        self._sources = sources
        self._settings = settings
        self._width = width
        self._column_cost = column_cost
        self._neural = neural

    def begin(self, task: Task) -> None:
        neural = None
        if self._neural is not None:
            self._neural.begin(task)
            neural = LedgerCoin(self._neural)
        cost = RoundCost.linear(self._column_cost)
        self._router = DraftRouter(self._settings, cost=cost, neural=neural)
        self._router.begin(REQUEST, expect_index=True)
        for part in self._sources.build(task):
            self._router.add_index(part)
        self._ledger = Ledger(task.prompt_ids, len(task.output_ids))
        self._ledger.append(task.output_ids[:1].tolist())
        self._tally = Tally(0.0, self._width)
        self._draft: Draft | None = None

    def propose(self, ids: np.ndarray, room: int) -> Sequence[int]:
        self._router.begin_pass(1, 1)
        self._draft = self._router.propose(REQUEST, self._ledger, room, self._tally)
        return self._draft.token_ids if self._draft else ()

    def observe(self, ids: np.ndarray, drafted: int, accepted: int) -> None:
        self._ledger.append(ids[len(self._ledger) :].tolist())
        self._router.observe(REQUEST, self._ledger, self._draft, accepted)


class LedgerCoin:
    """The stand-in for a neural drafter behind the engine's interface."""

    def __init__(self, coin: CoinDrafter) -> None:
        self.width = coin.width
        self._coin = coin

    def draft(self, asks: Sequence[NeuralAsk]) -> list[Sequence[int]]:
        return [self._coin.propose(ask.ledger.tokens, ask.budget) for ask in asks]

    def cost(self, drafts: int) -> float:
        return 0.0  # as in the lab
