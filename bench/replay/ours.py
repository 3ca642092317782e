"""ninfer's own drafters, driven as the engine drives them: the product's code, no copy of it."""

import threading
from collections.abc import Sequence

import numpy as np

from bench.replay.tasks import Task
from services.engine.drafting.copy import CopyDrafter
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
        self._built: tuple[str, IndexReady] | None = None

    def build(self, task: Task) -> IndexReady:
        if self._built is None or self._built[0] != task.name:
            message = BuildIndex(
                request_id=REQUEST,
                prompt_ids=task.prompt_ids,
                tool_texts=task.tool_texts,
                predicted=None,
            )
            index = self._builder.build(message, threading.Event())
            assert index is not None
            self._built = (task.name, index)
        return self._built[1]

    def beside_prompt(self, task: Task) -> list[np.ndarray]:
        return [source.tokens for source in self.build(task).sources if source.kind != "prompt"]


class FixedCopies:
    """`--ngram-policy fixed`: one minimum match, one width, the tail handoff."""

    def __init__(
        self, sources: SourceBuilder, special_ids: frozenset[int], width: int, min_match: int
    ) -> None:
        self.name = f"ninfer fixed {min_match}/{width}"
        self._sources = sources
        self._special_ids = special_ids
        self._width = width
        self._min_match = min_match

    def begin(self, task: Task) -> None:
        self._drafter = CopyDrafter(
            min_match=self._min_match, neural_width=0, boundary_ids=self._special_ids
        )
        self._drafter.begin(REQUEST, expect_index=True)
        self._drafter.add_index(self._sources.build(task))
        self._ledger = Ledger(task.prompt_ids, len(task.output_ids))
        self._tally = Tally(0.0, self._width)

    def propose(self, ids: np.ndarray, room: int) -> Sequence[int]:
        self._ledger.append(ids[len(self._ledger) :].tolist())
        room = min(room, self._width)
        draft = self._drafter.propose(REQUEST, self._ledger, room, self._tally)
        return draft.token_ids if draft else ()

    def observe(self, ids: np.ndarray, drafted: int, accepted: int) -> None:
        """The next proposal indexes what was committed."""
