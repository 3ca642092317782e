"""vLLM's CPU build in an environment of its own, on the same bf16 weights."""

import json
from pathlib import Path
from typing import Any

from bench.peers.server import PeerMissing, Setting
from services.engine.checkpoint.fetch import user_cache
from services.engine.models.tensor_index import DRAFTER

START_S = 900.0  # it compiles for 105 s on a quiet machine
CONTEXT = 4096
DRAFTS: dict[str, dict[str, Any] | None] = {
    "none": None,
    "ngram": {
        "method": "ngram",
        "num_speculative_tokens": 15,
        "prompt_lookup_min": 2,
        "prompt_lookup_max": 5,
    },
    "suffix": {"method": "suffix", "num_speculative_tokens": 16},
}


def default_python() -> Path:
    return user_cache() / "peers" / "vllm" / "bin" / "python"


def settings(python: Path, model: Path, work: Path, *, threads: int) -> list[Setting]:
    """Plain, n-gram and suffix drafting. `work` is an empty folder that outlives the servers.

    Raises:
        PeerMissing: it is not installed.
    """
    if not python.is_file():
        raise PeerMissing(
            f"vLLM is not installed: there is no {python}; docs/benchmarking.md says how"
        )
    for path in model.iterdir():
        if path.name != DRAFTER:  # it takes every safetensors file for a part of the model
            (work / path.name).symlink_to(path)
    # fmt: off
    argv = [
        str(python), "-m", "vllm.entrypoints.openai.api_server", "--model", str(work),
        "--dtype", "bfloat16", "--max-model-len", str(CONTEXT), "--max-num-seqs", "4",
        "--no-enable-prefix-caching",
    ]
    # fmt: on
    environment = {
        "VLLM_CPU_KVCACHE_SPACE": "1",  # GiB
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",  # as ours, which the scheduler may move
        "OMP_NUM_THREADS": str(threads),
        # without Intel's OpenMP it warns that speculation is much slower
        "LD_PRELOAD": str(python.parents[1] / "lib" / "libiomp5.so"),
        "HF_HUB_OFFLINE": "1",
        "VLLM_NO_USAGE_STATS": "1",
    }
    return [
        Setting(
            "vLLM",
            "bf16",
            drafts,
            argv if config is None else [*argv, "--speculative-config", json.dumps(config)],
            START_S,
            environment,
        )
        for drafts, config in DRAFTS.items()
    ]
