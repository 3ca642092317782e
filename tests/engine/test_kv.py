"""Memory of keys and values is committed as tokens come."""

import os
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from services.engine.kv import UNIT_TOKENS, KvCache

SHAPE = SimpleNamespace(layers=8, kv_heads=2, head_dim=64)
MIB = 1 << 20


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_slots_first_token_commits_no_more_than_units_of_each_head() -> None:
    kv = KvCache(
        SHAPE, slots=2, max_context=32_768, dtype=torch.float32, device=torch.device("cpu")
    )
    assert kv.bytes_per_token * kv.max_context == 256 * MIB
    before = _resident()
    for layer in kv.layers:
        for part in layer:
            part[0, :, 0] = 1.0
    assert _resident() - before < 8 * MIB
    kv.copy(0, 1, UNIT_TOKENS)
    assert _resident() - before < 16 * MIB
    assert all(float(part[1, 1, 0, 0]) == 1.0 for layer in kv.layers for part in layer)
    assert not any(bool(part[1, 1, 1:].any()) for part in kv.layers[0])


def _resident() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")
