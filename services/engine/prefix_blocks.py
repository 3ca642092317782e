"""Which prefixes the host tier holds: an index over fixed blocks of tokens. No torch.

A block is named by a hash of its tokens, of the block before it and of the caller's salt, so equal
prefixes share their blocks, and nobody finds those of another salt.
"""

import hashlib
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

BLOCK_TOKENS = 64
Name = bytes


@dataclass
class Entry:
    block: int  # which block of the pool
    parent: Name | None
    references: int = 0  # blocks that continue this one


class NewBlock(NamedTuple):
    block: int  # of the pool
    ordinal: int  # the how-manieth block of the tokens goes there, from 0


class PrefixBlocks:
    """At most `capacity` blocks; when full, the least recently used that nothing continues goes."""

    def __init__(self, capacity: int) -> None:
        self._free = list(range(capacity - 1, -1, -1))
        self._capacity = capacity
        self._entries: OrderedDict[Name, Entry] = OrderedDict()  # least recently used first

    def __len__(self) -> int:
        return len(self._entries)

    def find(self, tokens: np.ndarray, salt: str) -> list[int]:
        """The blocks of the longest known prefix of int32 `tokens`, in order."""
        found: list[Name] = []
        for name, _ in _chain(tokens, salt):
            if name not in self._entries:
                break
            found.append(name)
        self._touch(found)
        return [self._entries[name].block for name in found]

    def insert(self, tokens: np.ndarray, salt: str) -> list[NewBlock]:
        """Takes blocks for what is new of the whole blocks of `tokens`; the caller fills them."""
        new: list[NewBlock] = []
        chain: list[Name] = []
        for ordinal, (name, parent) in enumerate(_chain(tokens, salt)):
            if name not in self._entries:
                block = self._take_block(protected=set(chain))
                if block is None:
                    break
                self._entries[name] = Entry(block, parent)
                if parent is not None:
                    self._entries[parent].references += 1
                new.append(NewBlock(block, ordinal))
            chain.append(name)
        self._touch(chain)
        return new

    def check(self) -> None:
        """Every block is free or named once; the reference counts are those of the chains."""
        used = [entry.block for entry in self._entries.values()]
        assert sorted([*used, *self._free]) == list(range(self._capacity)), "a block is lost"
        parents = [e.parent for e in self._entries.values() if e.parent is not None]
        for name, entry in self._entries.items():
            assert entry.references == parents.count(name), "a reference count is wrong"
        assert all(parent in self._entries for parent in parents), "a chain is broken"

    def _touch(self, chain: list[Name]) -> None:
        """The end of a chain first, so that a block is always younger than what continues it."""
        for name in reversed(chain):
            self._entries.move_to_end(name)

    def _take_block(self, protected: set[Name]) -> int | None:
        """None if only the chain being built is left."""
        if self._free:
            return self._free.pop()
        for name, entry in self._entries.items():
            if not entry.references and name not in protected:
                del self._entries[name]
                if entry.parent is not None:
                    self._entries[entry.parent].references -= 1
                return entry.block
        return None


def _chain(tokens: np.ndarray, salt: str) -> Iterator[tuple[Name, Name | None]]:
    """Each whole block's name, and the name of the one before it."""
    parent: Name | None = None
    state = hashlib.blake2b(salt.encode(), digest_size=16).digest()
    for end in range(BLOCK_TOKENS, len(tokens) + 1, BLOCK_TOKENS):
        block = np.ascontiguousarray(tokens[end - BLOCK_TOKENS : end], np.int32)
        state = hashlib.blake2b(state + block.tobytes(), digest_size=16).digest()
        yield state, parent
        parent = state
