"""The host tier: KV of prefixes whose slot was overwritten, in main memory (`--host-cache-mib`)."""

import numpy as np
import torch

from services.engine.kv import KvCache, zeros
from services.engine.prefix_blocks import BLOCK_TOKENS, PrefixBlocks


class HostTier:
    """One tensor of blocks, [blocks, layers, 2, kv_heads, BLOCK_TOKENS, head_dim], and its index.

    Its memory is the operating system's until a block is first written.
    """

    def __init__(self, kv: KvCache, size_bytes: int) -> None:
        blocks = size_bytes // (BLOCK_TOKENS * kv.bytes_per_token)
        keys = kv.layers[0].keys
        _, kv_heads, _, head_dim = keys.shape
        shape = (blocks, len(kv.layers), 2, kv_heads, BLOCK_TOKENS, head_dim)
        self._pool = zeros(shape, keys.dtype, torch.device("cpu"))
        self._index = PrefixBlocks(blocks)

    def find(self, tokens: np.ndarray, salt: str) -> tuple[tuple[int, ...], int]:
        """The blocks of the longest saved prefix, and how many tokens they hold."""
        blocks = tuple(self._index.find(tokens, salt))
        return blocks, len(blocks) * BLOCK_TOKENS

    def save(self, tokens: np.ndarray, salt: str, kv: KvCache, slot: int) -> None:
        """What is not yet saved of the slot's whole blocks."""
        new = self._index.insert(tokens, salt)
        if not new:
            return
        blocks = torch.tensor([block for block, _ in new])
        first, last = new[0].ordinal, new[-1].ordinal + 1
        assert [ordinal for _, ordinal in new] == list(range(first, last)), (
            "blocks form one stretch"
        )
        for i_layer, layer in enumerate(kv.layers):
            for i_part, part in enumerate(layer):
                stretch = part[slot, :, first * BLOCK_TOKENS : last * BLOCK_TOKENS]
                blocked = stretch.view(len(stretch), last - first, BLOCK_TOKENS, -1)
                self._pool[blocks, i_layer, i_part] = blocked.transpose(0, 1).cpu()

    def restore(self, blocks: tuple[int, ...], kv: KvCache, slot: int) -> None:
        """Fills the slot's first `len(blocks)` blocks."""
        chosen = torch.tensor(blocks)
        tokens = len(blocks) * BLOCK_TOKENS
        for i_layer, layer in enumerate(kv.layers):
            for i_part, part in enumerate(layer):
                blocked = self._pool[chosen, i_layer, i_part].transpose(0, 1)
                part[slot, :, :tokens] = blocked.flatten(1, 2).to(part.device)

    def check(self) -> None:
        self._index.check()
