"""Whatever becomes of the files that keep compiled kernels, the kernels run."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

CALL = (
    "import torch; from kernels.rms_norm import rms_norm;"
    "print(rms_norm(torch.full((1, 16), 3.0), torch.ones(16), 0.0).tolist());"
    "from kernels.compiled import not_kept; print('kernels.rms_norm.kernel.normalise' in not_kept)"
)
ONES = f"{[[1.0] * 16]}\n"


def called(cache: Path) -> str:
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(cache), "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        [sys.executable, "-c", CALL], env=environment, capture_output=True, text=True, check=True
    ).stdout


@pytest.mark.parametrize("kept", ["*.nbc", "*.nbi"], ids=["code", "index"])
def test_a_damaged_file_is_compiled_again(tmp_path: Path, kept: str) -> None:
    whole = called(tmp_path)
    assert whole == ONES + "False\n"
    damaged = list(tmp_path.rglob(kept))
    assert damaged
    for path in damaged:
        path.write_bytes(path.read_bytes()[:50])
    assert called(tmp_path) == ONES + "True\n"


def test_a_folder_that_cannot_be_made_is_done_without(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert called(tmp_path / "file" / "below").startswith(ONES)
