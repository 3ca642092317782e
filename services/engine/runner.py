"""Builds the packed pass from the plan and runs the model on it."""

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import torch

from services.engine.batch import Batch, RowSpan
from services.engine.drafting.draft import Draft
from services.engine.kv import KvCache
from services.engine.models.llama import LlamaModel
from services.engine.planner import RowPlan
from services.engine.table import RequestTable

REHEARSED_COLUMNS = (1, 2, 4, 8, 16, 32)
REHEARSALS = 5  # of a width; the fastest counts
CONTEXT_COLUMNS, FAR_TOKENS = 16, 4096
REHEARSAL_S = 0.5  # spent on one width before the next begins


class ModelFault(Exception):
    """A pass that failed: out of memory, or a fault in a kernel."""


@contextmanager
def model_faults() -> Iterator[None]:
    """Raises ModelFault for what torch raises."""
    try:
        yield
    except (RuntimeError, MemoryError) as exc:  # torch reports both kinds as RuntimeError
        raise ModelFault(str(exc)) from exc


@dataclass(frozen=True)
class Pass:
    logits: dict[str, torch.Tensor]  # fp32 [1 + drafts, vocab] of each sampling row
    hidden: dict[str, torch.Tensor]  # [columns with drafts, hidden] of each row, behind the norm
    forward_s: float


class Runner:
    def __init__(self, model: LlamaModel, kv: KvCache, device: torch.device) -> None:
        self._model = model
        self._kv = kv
        self.device = device
        self.vocab_size = model.config.vocab_size

    def launch(
        self, rows: tuple[RowPlan, ...], drafts: Mapping[str, Draft], table: RequestTable
    ) -> Pass:
        """Runs one pass.

        Raises:
            ModelFault: the pass failed; KV behind each row's `start` is as it was.
        """
        batch, wanted = self._build(rows, drafts, table)
        began_s = time.monotonic()
        with model_faults():
            logits, states = self._model.forward(batch, self._kv)
        forward_s = time.monotonic() - began_s
        by_request = {}
        end = 0
        for request_id, columns in wanted:
            by_request[request_id] = logits[end : end + columns]
            end += columns
        hidden = {
            row.request_id: states[span.offset : span.offset + span.columns]
            for row, span in zip(rows, batch.rows, strict=True)
        }
        return Pass(by_request, hidden, forward_s)

    def rehearse(self, widest: int) -> dict[int, float]:
        """Throw-away passes in slot 0: the first request does not pay for start-up work, and the
        drafters learn what a pass costs. Seconds by columns, from 1 to about `widest` >= 2."""
        widths = [w for w in REHEARSED_COLUMNS if w < widest] + [widest]
        self._rehearse(widths[-1])
        return {columns: self._fastest(columns) for columns in widths}

    def rehearse_context(self, context: int) -> float:
        """Seconds that a column takes longer for each token that it attends to, measured as far
        into a slot of `context` tokens as is worth it."""
        start = min(context - CONTEXT_COLUMNS, FAR_TOKENS)
        if start < 1:
            return 0.0
        near, far = (self._fastest(CONTEXT_COLUMNS, at) for at in (0, start))
        return max(0.0, far - near) / (CONTEXT_COLUMNS * start)

    def any_state(self) -> torch.Tensor:
        """[1, hidden], of a throw-away pass in slot 0."""
        return self._model.forward(self._blank(1), self._kv).hidden

    def _fastest(self, columns: int, start: int = 0) -> float:
        """Of a few passes behind `start` tokens; few if they take long."""
        taken = [self._rehearse(columns, start)]
        while len(taken) < REHEARSALS and sum(taken) < REHEARSAL_S:
            taken.append(self._rehearse(columns, start))
        return min(taken)

    def _rehearse(self, columns: int, start: int = 0) -> float:
        batch = self._blank(columns, start)
        began_s = time.monotonic()
        self._model.forward(batch, self._kv)
        return time.monotonic() - began_s

    def _blank(self, columns: int, start: int = 0) -> Batch:
        return Batch(
            token_ids=self._tensor([0] * columns),
            positions=self._tensor(list(range(start, start + columns))),
            rows=(RowSpan(slot=0, start=start, columns=columns, offset=0),),
            logit_columns=self._tensor(list(range(columns))),
        )

    def _build(
        self, rows: tuple[RowPlan, ...], drafts: Mapping[str, Draft], table: RequestTable
    ) -> tuple[Batch, list[tuple[str, int]]]:
        """The batch, and how many logit columns each sampling row gets, in order."""
        token_ids: list[int] = []
        positions: list[int] = []
        spans: list[RowSpan] = []
        logit_columns: list[int] = []
        wanted: list[tuple[str, int]] = []
        for row in rows:
            request = table.get(row.request_id)
            assert request is not None
            assert request.slot is not None
            offset = len(token_ids)
            token_ids += request.ledger.tokens[row.start : row.start + row.columns].tolist()
            if draft := drafts.get(row.request_id):
                token_ids += draft.token_ids
            columns = len(token_ids) - offset
            positions += range(row.start, row.start + columns)
            spans.append(RowSpan(request.slot, row.start, columns, offset))
            if row.samples:
                logit_columns += range(offset + row.columns - 1, offset + columns)
                wanted.append((row.request_id, columns - row.columns + 1))
        batch = Batch(
            token_ids=self._tensor(token_ids),
            positions=self._tensor(positions),
            rows=tuple(spans),
            logit_columns=self._tensor(logit_columns),
        )
        return batch, wanted

    def _tensor(self, values: list[int]) -> torch.Tensor:
        return torch.tensor(values, dtype=torch.int64, device=self.device)
