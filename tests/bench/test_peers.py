"""Peers run only while they are asked, and the best setting of each is compared."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import pytest

from bench.peers import llama_cpp, vllm
from bench.peers.contest import COPY, SOURCE, Contestant, bars, finalists, speed_of
from bench.peers.server import PeerMissing, PeerServer, Setting
from bench.serving.client import Answer, ChatClient
from bench.serving.workloads import Turn
from tests.e2e.conftest import wait_for

SCRIPT = """
import sys
from tests.bench.fake_server import FakeServer
chunk = {"choices": [{"delta": {"content": "hi"}, "finish_reason": "stop"}]}
port = int(sys.argv[sys.argv.index("--port") + 1])
FakeServer("llamacpp", [chunk], port=port).serve_forever()
"""


def setting(script: str, *, start_s: float = 30.0) -> Setting:
    return Setting("llama.cpp", "bf16", "none", [sys.executable, "-c", script], start_s)


@contextmanager
def running(script: str) -> Iterator[tuple[PeerServer, int]]:
    """The server and its process id."""
    server = PeerServer(setting(script))
    try:
        yield server, server.pid
    finally:
        server.stop()


def state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def test_a_peer_gets_no_time_unless_it_is_asked() -> None:
    with running(SCRIPT) as (server, pid):
        wait_for(lambda: state(pid) == "T")
        with server.awake() as client:
            assert state(pid) != "T"
            answer = client.ask(COPY, output_tokens=4, salt="", ninfer={})
        assert answer.text == "hi"
        wait_for(lambda: state(pid) == "T")


def test_a_stopped_peer_leaves_no_process() -> None:
    with running(SCRIPT) as (_, pid):
        pass
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_a_peer_that_dies_at_its_start_says_its_last_line() -> None:
    with pytest.raises(PeerMissing, match="no such model"):
        PeerServer(setting("raise SystemExit('first line\\nno such model')"))


def test_a_peer_that_is_never_healthy_is_given_up_and_stopped() -> None:
    with pytest.raises(PeerMissing, match="does not start"):
        PeerServer(setting("import time; time.sleep(600)", start_s=0.5))


def test_a_peer_that_is_not_installed_is_said_with_its_place(tmp_path: Path) -> None:
    absent = tmp_path / "absent"
    with pytest.raises(PeerMissing, match=f"not installed: there is no {absent}"):
        llama_cpp.settings(absent, tmp_path, threads=1)
    with pytest.raises(PeerMissing, match=f"not installed: there is no {absent}"):
        vllm.settings(absent, tmp_path, tmp_path, threads=1)


def test_llama_cpp_has_no_weights_of_an_unknown_model(tmp_path: Path) -> None:
    server = tmp_path / "llama-server"
    server.touch()
    with pytest.raises(PeerMissing, match="no GGUF of other"):
        llama_cpp.settings(server, tmp_path / "other", threads=1)


def test_vllm_is_shown_the_model_without_the_drafter_beside_it(tmp_path: Path) -> None:
    python, model, work = tmp_path / "python", tmp_path / "model", tmp_path / "work"
    python.touch()
    for folder in (model, work):
        folder.mkdir()
    for name in ("config.json", "model.safetensors", "mtp.safetensors"):
        (model / name).touch()
    found = vllm.settings(python, model, work, threads=2)
    assert sorted(path.name for path in work.iterdir()) == ["config.json", "model.safetensors"]
    assert [one.drafts for one in found] == ["none", "ngram", "suffix"]
    assert {one.environment["OMP_NUM_THREADS"] for one in found} == {"2"}


class Scripted:
    """A client whose answer takes a second for the given tokens."""

    def __init__(self, tokens_s: float, text: str) -> None:
        self.tokens_s, self.text = tokens_s, text

    def ask(self, turn: Turn, *, output_tokens: int, **_: Any) -> Answer:
        text = self.text if turn is COPY else "prose"
        took_s = (output_tokens - 1) / self.tokens_s
        return Answer(text, "length", 9, output_tokens, 0, 0.1, took_s)


def contestant(
    peer: str, weights: str, drafts: str, tokens_s: float, *, text: str = SOURCE
) -> Contestant:
    client = cast(ChatClient, Scripted(tokens_s, text))
    name = f"{peer} {weights} {drafts}"
    return Contestant(peer, weights, drafts, name, cast(Any, None), client)


def test_of_each_peer_the_fastest_true_copies_go_on() -> None:
    peers = [
        contestant("vLLM", "bf16", "none", 20),
        contestant("vLLM", "bf16", "ngram", 60),
        contestant("vLLM", "bf16", "loops", 900, text="la la " * 99),
        contestant("vLLM", "bf16", "suffix", 70),
        contestant("vLLM", "bf16", "slow", 30),
    ]
    assert [one.drafts for one in finalists(peers, 8)] == ["none", "suffix", "ngram"]


def test_the_best_settings_are_compared_and_what_has_not_run_is_not() -> None:
    speeds = [
        ("ninfer", "bf16", "copies", {"copy": 300.0, "plain": 20.0}),
        ("ninfer", "int8", "copies", {"copy": 400.0, "plain": 30.0}),
        ("llama.cpp", "q4_1", "none", {"plain": 50.0}),
        ("llama.cpp", "bf16", "none", {"plain": 40.0}),
        ("llama.cpp", "q4_1", "ngram-mod", {"copy": 80.0}),
        ("llama.cpp", "bf16", "ngram-simple", {"copy": 100.0}),
    ]
    runners = []
    for peer, weights, drafts, reached in speeds:
        one = contestant(peer, weights, drafts, 1)
        for workload, speed in reached.items():
            one.speeds[workload] += [speed / 2, speed, speed * 2]
        runners.append(one)
    found = {bar.name: bar.value for bar in bars(runners, "")}
    # neither vLLM nor int4 weights have run
    assert found == {"copy_vs_llama_cpp": 4.0, "plain_vs_llama_cpp_bf16": 0.5}


@pytest.mark.parametrize(
    ("ttft_s", "decode_s", "speed"),
    [(1.0, 1.0, 255.0), (1.0, 0.06, 255 / 0.06), (2.0, 0.0001, 256 / 2.0001), (2.0, 0.0, 128.0)],
    ids=["a stream", "a fast stream", "a burst", "one piece"],
)
def test_an_answer_that_comes_in_one_burst_is_timed_as_a_whole(
    ttft_s: float, decode_s: float, speed: float
) -> None:
    answer = Answer("", "stop", 1, 256, 0, ttft_s, decode_s)
    assert speed_of(answer) == pytest.approx(speed)
