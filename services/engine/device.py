"""Where the model runs. The only file that may call `torch.cuda`.

Waiting must be passive, or an idle thread of the model spins on a core that the gateway and the
indexer need. OpenMP reads that before torch is imported, so whoever starts the engine's process
exports OMP_WAIT_POLICY=PASSIVE and KMP_BLOCKTIME=0.
"""

import os

import torch

from shared.errors import ConfigError

MOST_THREADS = 1024
DTYPES = {"bfloat16": torch.bfloat16, "float32": torch.float32}


def resolve_device(name: str) -> torch.device:
    """`cpu` or `cuda`.

    Raises:
        ConfigError: unknown, or this torch sees no such device.
    """
    if name not in ("cpu", "cuda"):
        raise ConfigError(f"--device {name} is not known; use cpu or cuda")
    if name == "cuda" and not torch.cuda.is_available():
        raise ConfigError(
            "--device cuda: this torch sees no CUDA device; "
            "install the CUDA build (make setup TORCH=cuda) or use --device cpu"
        )
    return torch.device(name)


def parse_dtype(name: str) -> torch.dtype:
    """The type of weights and KV; `auto` is bfloat16, in which checkpoints come.

    Raises:
        ConfigError: unknown.
    """
    if name == "auto":
        return torch.bfloat16
    if name not in DTYPES:
        raise ConfigError(f"--dtype {name} is not known; use auto, {' or '.join(DTYPES)}")
    return DTYPES[name]


def set_threads(requested: int) -> int:
    """Sets and returns the model's CPU threads; 0 asks for one fewer than the cores, at least 1.

    With as many threads as cores, any other runnable process makes every parallel region wait
    for a slice of the scheduler: about 8 ms a layer instead of 0.2.

    Raises:
        ConfigError: no such number.
    """
    if not 0 <= requested <= MOST_THREADS:
        raise ConfigError(f"--threads {requested} is out of range; use 0 to {MOST_THREADS}")
    threads = requested or max(1, usable_cores() - 1)
    torch.set_num_threads(threads)
    return threads


def usable_cores() -> int:
    """The cores this process may run on, which a container may limit."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def synchronise(device: torch.device) -> None:
    """Returns when all work given to the device is done."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
