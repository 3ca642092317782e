"""Drafts with the MTP module: `--spec mtp`.

It reads the target's hidden states of every committed column and keeps keys and values of its own
beside the target's, in the same slot. Of each request, with n committed tokens:

    [0, kept)       keys and values are in place, made from the target's own states
    [kept, n - 1)   the target has computed them; their states wait here
    [kept, ...)     may hold those of drafts, which are overwritten before they are read as history

Column t needs the token at t + 1, so it is always one behind the target's.
"""

import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch

from services.engine.batch import RowSpan
from services.engine.drafting.neural import NeuralAsk
from services.engine.kv import KvCache
from services.engine.ledger import Ledger
from services.engine.models.mtp import MtpModule
from services.engine.runner import model_faults

# Keys and values alone of a waiting column cost a fifth of it, and a lone column as much as many.
# So they are made in bulk; what a usual round accepts goes through the first draft step instead.
BULK_COLUMNS = 64
STEP_COLUMNS = 4
FOLLOW = 0.05  # how much of a measurement enters the cost; as of the target's passes
MOST_MOVED = 2.0


REHEARSALS = 5


@dataclass
class _Row:
    slot: int
    ledger: Ledger
    kept: int
    waiting: list[torch.Tensor] = field(default_factory=list)  # [columns, hidden] each

    @property
    def columns(self) -> int:
        return sum(len(part) for part in self.waiting)


@dataclass
class _Chain:
    """The drafts of one row, as they grow."""

    row: _Row
    budget: int
    ids: list[int] = field(default_factory=list)


class MtpDrafter:
    def __init__(self, module: MtpModule, kv: KvCache, *, width: int, device: torch.device) -> None:
        assert kv.drafter_layers == 1
        self.width = width
        self._module = module
        self._layer = kv.layers[-1]
        self._device = device
        self._rows: dict[str, _Row] = {}
        self._first_s, self._more_s = 0.0, 0.0  # of a call: the first step, and each further one

    def draft(self, asks: Sequence[NeuralAsk]) -> list[list[int]]:
        """The module's likeliest tokens, one step after the other; all rows share each step.

        Raises:
            ModelFault: a step failed.
        """
        chains = {}
        for ask in asks:
            row = self._rows.get(ask.request_id)
            if row is not None and row.columns:
                chains[ask.request_id] = _Chain(row, ask.budget)
        if chains:
            rows = [chain.row for chain in chains.values()]
            self._catch_up(rows, leave=STEP_COLUMNS)
            with model_faults():
                self._extend(list(chains.values()))
        return [chains[a.request_id].ids if a.request_id in chains else [] for a in asks]

    def cost(self, drafts: int) -> float:
        """Seconds; about the same for any few rows."""
        return self._first_s + (drafts - 1) * self._more_s if drafts else 0.0

    def follow(
        self, request_id: str, slot: int, ledger: Ledger, *, start: int, hidden: torch.Tensor
    ) -> None:
        """The target has computed committed columns [start, start + len(hidden)), and `ledger`
        holds the token behind the last; `hidden` [columns, hidden] is behind its final norm.

        Raises:
            ModelFault: catching up failed.
        """
        row = self._rows.setdefault(request_id, _Row(slot, ledger, start))
        known = row.kept + row.columns
        assert start == known, f"{request_id} skips from {known} to {start}"
        if len(hidden):
            row.waiting.append(hidden)
        if row.columns >= BULK_COLUMNS:
            self._catch_up([row], leave=1)

    def settle(self, request_id: str) -> None:
        """Catches up with all that is committed: from now on others may take over the slot.

        Raises:
            ModelFault: catching up failed.
        """
        row = self._rows.get(request_id)
        if row is not None:
            self._catch_up([row], leave=0)

    def release(self, request_id: str) -> None:
        self._rows.pop(request_id, None)

    def check(self, running: Collection[str]) -> None:
        """Only running requests have a state here."""
        assert self._rows.keys() <= set(running), f"{set(self._rows)} are not all running"

    def rehearse(self, hidden: torch.Tensor) -> None:
        """Throw-away drafts in slot 0, so that the first round knows what they cost. `hidden`
        [1, hidden] is any state of the target."""
        ledger = Ledger(np.zeros(2, np.int32), 0)
        fastest = []
        for _ in range(1 + REHEARSALS):  # the first one warms up
            self._first_s, self._more_s = 0.0, 0.0
            self.follow("rehearsal", 0, ledger, start=0, hidden=hidden)
            self.draft([NeuralAsk("rehearsal", ledger, min(2, self.width))])
            self.release("rehearsal")
            fastest.append((self._first_s, self._more_s))
        self._first_s = min(first for first, _ in fastest)
        self._more_s = min(more for _, more in fastest)

    def _extend(self, chains: list[_Chain]) -> None:
        """Step 0 reads the target's states, a later step those of the one before."""
        began_s = time.monotonic()
        hidden = self._first([chain.row for chain in chains])
        ids = self._module.draft(hidden)
        steps, first_s = 0, 0.0
        while True:
            for chain, token in zip(chains, ids.tolist(), strict=True):
                chain.ids.append(token)
            first_s = first_s or time.monotonic() - began_s
            going = [n for n, chain in enumerate(chains) if len(chain.ids) < chain.budget]
            if not going:
                break
            chains = [chains[n] for n in going]
            spans = tuple(
                RowSpan(chain.row.slot, chain.row.kept + steps, 1, n)
                for n, chain in enumerate(chains)
            )
            chosen = torch.tensor(going, device=self._device)
            ids = ids[chosen]
            hidden = self._module.step(hidden[chosen], ids, spans, self._layer)
            ids = self._module.draft(hidden)
            steps += 1
        self._first_s = _moved(self._first_s, first_s)
        if steps:
            more_s = (time.monotonic() - began_s - first_s) / steps
            self._more_s = _moved(self._more_s, more_s)

    def _first(self, rows: Sequence[_Row]) -> torch.Tensor:
        """A step over all waiting columns; the states of each row's last, [rows, hidden]."""
        spans, ids, last, offset = [], [], [], 0
        for row in rows:
            spans.append(RowSpan(row.slot, row.kept, row.columns, offset))
            ids.append(self._behind(row, row.columns))
            offset += row.columns
            last.append(offset - 1)
        hidden = torch.cat([part for row in rows for part in row.waiting])
        stepped = self._module.step(hidden, torch.cat(ids), tuple(spans), self._layer)
        for row in rows:
            row.kept += row.columns
            row.waiting.clear()
        return stepped[torch.tensor(last, device=self._device)]

    def _catch_up(self, rows: Sequence[_Row], *, leave: int) -> None:
        """Makes keys and values of what waits, but for the last `leave` columns of each row.

        The last column goes on waiting in any case: the next draft needs its state.
        """
        spans, ids, states, offset = [], [], [], 0
        for row in rows:
            # a stop string may have cut the ledger; what stood behind it is nobody's history
            known = min(row.columns, len(row.ledger) - 1 - row.kept)
            columns = known - leave
            if columns < 1:
                continue
            waiting = torch.cat(row.waiting)
            spans.append(RowSpan(row.slot, row.kept, columns, offset))
            ids.append(self._behind(row, columns))
            states.append(waiting[:columns])
            offset += columns
            done = min(columns, len(waiting) - 1)
            row.kept += done
            row.waiting = [waiting[done:].clone()]  # not a view, which would keep all of them
        if spans:
            with model_faults():
                self._module.remember(torch.cat(states), torch.cat(ids), tuple(spans), self._layer)

    def _behind(self, row: _Row, columns: int) -> torch.Tensor:
        """int64 [columns], the tokens behind the first waiting columns."""
        tokens = row.ledger.tokens[row.kept + 1 : row.kept + 1 + columns]
        return torch.from_numpy(tokens.astype(np.int64)).to(self._device)


def _moved(known: float, seen: float) -> float:
    """A cost follows what is measured; a moment's load may not move it much."""
    if not known:
        return seen
    off = min(max(seen / known, 1 / MOST_MOVED), MOST_MOVED) - 1
    return known * (1 + FOLLOW * off)
