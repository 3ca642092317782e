"""Devices, dtypes and threads. The only file that may touch torch.cuda.

OMP_WAIT_POLICY=PASSIVE and KMP_BLOCKTIME=0 must be in the environment before torch loads (the
launcher sets them): the OpenMP runtime reads them once, and a spinning thread starves the other
processes of a small machine.
"""

import os

import torch

from shared.errors import ConfigError

DTYPES = {"bfloat16": torch.bfloat16, "float32": torch.float32}


def resolve_device(name: str) -> torch.device:
    """Raises ConfigError: CUDA was asked for and this torch has none."""
    if name == "cuda" and not torch.cuda.is_available():
        raise ConfigError(
            "--device cuda: this torch finds no CUDA device; "
            "install the CUDA build (make setup TORCH=cuda) or use --device cpu"
        )
    return torch.device(name)


def parse_dtype(name: str) -> torch.dtype:
    """auto is bfloat16, in which the checkpoints come."""
    return DTYPES["bfloat16" if name == "auto" else name]


def set_threads(asked: int) -> int:
    """Sets and returns the model's CPU threads; 0 is one fewer than the cores, at least 1.

    With as many threads as cores, any other runnable process makes each parallel region wait for a
    scheduler slice: about 8 ms a layer instead of 0.2.
    """
    threads = asked or max(1, len(os.sched_getaffinity(0)) - 1)
    torch.set_num_threads(threads)
    return threads


def synchronise(device: torch.device) -> None:
    """Waits for queued kernels, so that a clock reading means something."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
