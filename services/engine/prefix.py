"""Reuse of computed KV: a request starts where the longest known prefix of its tokens ends.

Three places may hold it: a free slot (taken over as it lies), a running request's slot (copied) and
the host tier, blocks that were saved when their slot was overwritten. Slots stay contiguous, since
attention over scattered blocks would gather the context again in every round; a copy is made once
a request and takes 5 microseconds a token of the demo model, computing it 1,000.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal

import numpy as np

from services.engine.host_tier import HostTier
from services.engine.kv import KvCache
from services.engine.request import Request
from services.engine.slots import Slot, SlotPool
from shared.messages import ReuseEnd

PrefixSource = Literal["none", "slot", "running", "host"]
FEWEST_TELLING = 16  # tokens; that many are shared by chance, or by the template alone


@dataclass(frozen=True)
class Prefix:
    """The best prefix found; `slot` of the first two sources, `blocks` of the host tier."""

    source: PrefixSource
    tokens: int
    slot: int = -1
    owner: str = ""  # of a running request's slot
    held: int = 0  # tokens there, at least `tokens`
    blocks: tuple[int, ...] = ()


NOTHING = Prefix("none", 0)


class PrefixCache:
    """Gives slots to requests and fills them with what is known already."""

    def __init__(
        self, kv: KvCache, host: HostTier | None, settle: Callable[[str], None] | None = None
    ) -> None:
        """`settle` makes the neural drafter catch up with a running request, whose slot is to be
        copied."""
        self._settle = settle
        # A drafter's column needs the token behind it, and its state, which is not kept: the last
        # column of a prefix is computed again.
        self._again = min(1, kv.drafter_layers)
        self._kv = kv
        self._host = host
        self._pool = SlotPool(kv.slots)

    @property
    def has_room(self) -> bool:
        return bool(self._pool.free)

    def place(self, request: Request, running: Iterable[Request]) -> None:
        """Sets the request's `slot`, and `computed` to the tokens that need no computing.

        At least one token is left, whose pass yields the first draw.
        """
        wanted = request.ledger.tokens[:-1]
        salt = request.generate.cache_salt
        free = self._pool.free
        common = [_common(slot.tokens, wanted) if slot.salt == salt else 0 for slot in free]
        longest = max(range(len(free)), key=lambda i: (common[i], -i))
        own = free[longest]
        best = Prefix("slot", common[longest], own.number, held=len(own.tokens))
        best = self._running(wanted, salt, running, best)
        best = self._saved(wanted, salt, best)
        reuse_end = _reuse_end(best, wanted, salt, free)
        home, kept = self._home(free, common, longest, best)
        if self._save(home, kept) and best.source == "host":
            best = self._saved(wanted, salt, NOTHING)  # saving may have evicted some of it
        self._pool.take(home, request.request_id)
        self._fill(home.number, best)
        request.slot = home.number
        request.computed = max(0, best.tokens - self._again)
        request.reused = request.computed
        request.reused_from = best.source if request.reused else "none"
        request.reuse_end = reuse_end

    def _fill(self, slot: int, best: Prefix) -> None:
        if best.blocks:
            assert self._host is not None
            self._host.restore(best.blocks, self._kv, slot)
        elif best.tokens and best.slot != slot:
            if best.owner and self._settle is not None:
                self._settle(best.owner)
            self._kv.copy(best.slot, slot, best.tokens)

    def give_back(self, request: Request) -> None:
        """Only committed tokens are left to others: what a stop cut off is not among them."""
        assert request.slot is not None
        valid = min(request.computed, len(request.ledger))
        tokens = request.ledger.tokens[:valid].copy()
        salt = request.generate.cache_salt
        self._pool.give_back(request.slot, request.request_id, tokens, salt)
        request.slot = None

    def check(self, held: dict[str, int]) -> None:
        self._pool.check(held)
        if self._host is not None:
            self._host.check()

    @staticmethod
    def _running(wanted: np.ndarray, salt: str, running: Iterable[Request], best: Prefix) -> Prefix:
        for other in running:
            if other.generate.cache_salt == salt:
                valid = min(other.computed, len(other.ledger))
                tokens = _common(other.ledger.tokens[:valid], wanted)
                if tokens > best.tokens:
                    assert other.slot is not None
                    best = Prefix("running", tokens, other.slot, other.request_id, valid)
        return best

    def _saved(self, wanted: np.ndarray, salt: str, best: Prefix) -> Prefix:
        if self._host is None:
            return best
        blocks, tokens = self._host.find(wanted, salt)
        if tokens <= best.tokens:
            return best
        return Prefix("host", tokens, blocks=blocks, held=tokens)

    @staticmethod
    def _home(free: list[Slot], common: list[int], longest: int, best: Prefix) -> tuple[Slot, int]:
        """The slot to fill, and how many of its tokens stay as they are.

        A conversation goes on in its own slot; one that only shares its beginning with another
        takes the least recently used slot and copies.
        """
        own, kept = free[longest], common[longest]
        if best.source == "slot" and 2 * kept >= len(own.tokens):
            return own, kept
        return free[0], common[0] if best.slot == free[0].number else 0

    def _save(self, slot: Slot, kept: int) -> bool:
        """Into the host tier, what overwriting the slot would lose; False if that is nothing."""
        if self._host is None or len(slot.tokens) <= kept:
            return False
        self._host.save(slot.tokens, slot.salt, self._kv, slot.number)
        return True


def _reuse_end(best: Prefix, wanted: np.ndarray, salt: str, free: Iterable[Slot]) -> ReuseEnd:
    """Why no more than `best` is reused."""
    if best.tokens == len(wanted):
        return "complete"
    if best.tokens >= FEWEST_TELLING:
        return "changed" if best.tokens < best.held else "appended"
    others = (slot.tokens for slot in free if slot.salt != salt)
    if any(_common(tokens, wanted) >= FEWEST_TELLING for tokens in others):
        return "other_salt"
    return "unknown"


def _common(held: np.ndarray, wanted: np.ndarray) -> int:
    """How many leading tokens are equal."""
    size = min(len(held), len(wanted))
    differ = np.flatnonzero(held[:size] != wanted[:size])
    return int(differ[0]) if differ.size else size
