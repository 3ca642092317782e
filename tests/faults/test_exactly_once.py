"""Every request is answered exactly once, whatever goes wrong meanwhile.

The wall clock of all processes jumps by years at each reading, so no deadline can hang on it.
"""

import json
import random
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.conftest import Server, wait_for
from tests.faults.clients import Clients, Outcome
from tests.faults.injections import SERVICES, WEIGHTS, Injections

pytestmark = pytest.mark.e2e
Launch = Callable[..., Server]
TERMINALS = ("request_done", "request_error")
FLAGS = (
    "--ngram-draft-tokens=15",
    "--ngram-archive-mib=4",
    "--max-concurrency=2",
    "--max-waiting=6",
    "--slow-reader-s=2",
    "--queue-timeout-s=30",
)


@dataclass
class Rig:
    server: Server
    sockets: Path


@pytest.fixture
def rig(
    tiny_model: Path, launch: Launch, short_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Rig]:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent / "jumping_clock"))
    sockets = short_folder / "s"
    server = launch(tiny_model, f"--sockets={sockets}", *FLAGS)
    wait_for(server.all_up)
    children = [server.child(name) for name in SERVICES]
    yield Rig(server, sockets)
    children += [server.child(name) for name in SERVICES]
    assert server.stop() == 0
    assert not [pid for pid in children if Path(f"/proc/{pid}").exists()]
    assert not list(sockets.glob("*.sock"))
    assert b"Traceback" not in server.output.read_bytes()


async def inject(rig: Rig, seed: int, kinds: list[str]) -> tuple[Clients, Injections]:
    """One after the other, while clients go on asking; at the end nothing may be open."""
    rng = random.Random(seed)
    async with Clients(f"{rig.server.url}/chat/completions", seed) as clients:
        injections = Injections(rig.server, clients, rig.sockets, rng)
        for kind in kinds:
            await injections.inject(kind)
            assert not clients.faults, (kind, dict(injections.made))
    wait_for(rig.server.all_up)
    wait_for(rig.server.is_idle)
    return clients, injections


def judge(rig: Rig, outcomes: list[Outcome]) -> None:
    """What the clients saw against what the log says."""
    lines = [json.loads(line) for line in rig.server.log.read_text().splitlines()]
    ends: dict[str, list[str]] = defaultdict(list)
    instances: dict[str, str] = {}
    for line in lines:
        if "request" in line:
            instances[line["request"]["request_id"]] = line["server_instance_id"]
        if line["event"] in TERMINALS:
            ends[line["request"]["request_id"]].append(line["event"])
    assert [name for name, found in ends.items() if len(found) > 1] == []
    # only a gateway that was killed can owe the log a line
    last = lines[-1]["server_instance_id"]
    owed = {name: instance for name, instance in instances.items() if name not in ends}
    assert last not in owed.values()
    for outcome in outcomes:
        if outcome.end in ("done", "error") and outcome.request_id is not None:
            expected = "request_done" if outcome.end == "done" else "request_error"
            assert ends[outcome.request_id] == [expected], outcome


def drawn(seed: int, many: int) -> list[str]:
    return random.Random(seed).choices(list(WEIGHTS), list(WEIGHTS.values()), k=many)


@pytest.mark.timeout(240)
async def test_each_kind_of_fault_once(rig: Rig) -> None:
    kinds = [*WEIGHTS, "hang_archive", *(f"kill:{service}" for service in SERVICES)]
    clients, injections = await inject(rig, 1, kinds)
    judge(rig, clients.outcomes)
    assert set(WEIGHTS) <= set(injections.made)
    assert clients.counts()["done"] > 0


@pytest.mark.timeout(240)
async def test_an_engine_that_hangs_is_given_up_and_taken_back(rig: Rig) -> None:
    clients, _ = await inject(rig, 2, ["hang_engine"])
    judge(rig, clients.outcomes)
    assert clients.counts()["error"] > 0
    assert b"engine_lost" in rig.server.output.read_bytes()


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seed", [11, 12])
async def test_a_thousand_faults(rig: Rig, seed: int, capsys: Any) -> None:
    """Five hundred for each seed."""
    kinds = [*drawn(seed, 497), "hang_engine", "hang_archive", "kill"]
    clients, injections = await inject(rig, seed, kinds)
    judge(rig, clients.outcomes)
    slowest = {name: f"{max(took):.1f} s" for name, took in injections.recovered_s.items()}
    with capsys.disabled():
        print(f"\n{len(kinds)} injections {dict(injections.made)}")  # noqa: T201
        print(f"{len(clients.outcomes)} requests {dict(clients.counts())}")  # noqa: T201
        print(f"slowest recovery {slowest}")  # noqa: T201


def test_a_full_disk_costs_log_lines_and_no_request(tiny_model: Path, launch: Launch) -> None:
    server = launch(tiny_model, "--request-log-jsonl=/dev/full")
    body = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 5}
    assert [server.post(body).status_code for _ in range(3)] == [200] * 3
    assert server.output.read_bytes().count(b"request_log_failed") == 1
    assert server.stop() == 0
