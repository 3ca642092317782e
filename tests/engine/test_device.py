import os

import pytest
import torch

from services.engine.device import parse_dtype, resolve_device, set_threads, usable_cores
from shared.errors import ConfigError


def test_auto_is_bfloat16_and_an_unknown_type_is_refused() -> None:
    assert parse_dtype("auto") == parse_dtype("bfloat16") == torch.bfloat16
    assert parse_dtype("float32") == torch.float32
    with pytest.raises(ConfigError, match="float8"):
        parse_dtype("float8")


def test_an_unknown_or_absent_device_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    assert resolve_device("cpu") == torch.device("cpu")
    with pytest.raises(ConfigError, match="tpu"):
        resolve_device("tpu")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(ConfigError, match="CUDA"):
        resolve_device("cuda")


@pytest.mark.parametrize("threads", [-1, 1025])
def test_a_number_of_threads_that_cannot_be_is_refused(threads: int) -> None:
    before = torch.get_num_threads()
    with pytest.raises(ConfigError, match=f"--threads {threads} is out of range"):
        set_threads(threads)
    assert torch.get_num_threads() == before


@pytest.mark.parametrize(("cores", "threads"), [(1, 1), (2, 1), (8, 7)])
def test_one_core_is_left_to_the_other_processes(
    monkeypatch: pytest.MonkeyPatch, cores: int, threads: int
) -> None:
    before = torch.get_num_threads()
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(cores)))
    try:
        assert usable_cores() == cores
        assert set_threads(0) == threads == torch.get_num_threads()
        assert set_threads(2) == 2 == torch.get_num_threads()
    finally:
        torch.set_num_threads(before)
