"""Ledger, slots, table and a request's commit."""

from typing import NamedTuple

import numpy as np
import pytest
import torch

from services.engine.kv import KvCache
from services.engine.ledger import Ledger
from services.engine.prefix import PrefixCache
from services.engine.request import Request
from services.engine.slots import SlotPool
from services.engine.table import RequestTable
from services.engine.tally import Tally
from services.engine.target import Target
from shared.messages import Generate, Sampling


def make_request(
    request_id: str = "r", prompt: int = 10, limit: int = 20, stops: tuple[int, ...] = ()
) -> Request:
    prompt_ids = np.arange(100, 100 + prompt, dtype=np.int32)
    sampling = Sampling(temperature=0.0, top_p=1.0, top_k=0, min_p=0.0, seed=0)
    generate = Generate(
        request_id=request_id,
        prompt_ids=prompt_ids,
        max_output_tokens=limit,
        stop_ids=stops,
        sampling=sampling,
        expect_index=False,
        queue_deadline_s=10.0,
    )
    return Request(
        target=Target(generate, 200, torch.device("cpu")),
        gateway=b"g",
        generate=generate,
        ledger=Ledger(prompt_ids, limit),
        output_limit=limit,
        limited_by="length",
        tally=Tally(0.0, 15),
    )


def test_a_ledger_view_is_read_only() -> None:
    ledger = Ledger(np.arange(3, dtype=np.int32), 5)
    with pytest.raises(ValueError, match="read-only"):
        ledger.tokens[0] = 9


def test_a_ledger_grows_behind_its_prompt() -> None:
    ledger = Ledger(np.array([1, 2], dtype=np.int32), 5)
    ledger.append((7, 8))
    assert (ledger.tokens.tolist(), ledger.output_len) == ([1, 2, 7, 8], 2)


def test_committing_leaves_exactly_one_token_to_process() -> None:
    request = make_request()
    request.commit((5, 6, 7), accepted=2)
    assert len(request.ledger) - request.computed == 1


def test_a_stop_token_inside_a_round_ends_the_output_with_it() -> None:
    request = make_request(stops=(6,))
    kept, stopped = request.commit((5, 6, 7, 8), accepted=3)
    assert (kept, stopped) == ((5, 6), True)
    assert request.ledger.tokens[-2:].tolist() == [5, 6]
    assert request.computed < len(request.ledger)


def test_the_output_limit_cuts_a_round() -> None:
    request = make_request(limit=2)
    kept, stopped = request.commit((5, 6, 7, 8), accepted=3)
    assert (kept, stopped, request.remaining) == ((5, 6), False, 0)


IDS = np.array([1, 2], np.int32)


def test_unused_slots_come_first_then_the_least_recently_used() -> None:
    pool = SlotPool(3)
    for name in "ab":
        pool.take(pool.free[0], name)
    pool.give_back(1, "b", IDS, "")
    pool.give_back(0, "a", IDS, "salt")
    assert [slot.number for slot in pool.free] == [2, 1, 0]
    pool.take(pool.free[1], "c")
    pool.check({"c": 1})


def test_giving_back_a_slot_that_another_holds_is_caught() -> None:
    pool = SlotPool(1)
    pool.take(pool.free[0], "a")
    with pytest.raises(AssertionError):
        pool.give_back(0, "b", IDS, "")


class Shape(NamedTuple):
    layers: int = 1
    kv_heads: int = 1
    head_dim: int = 4


def make_table(slots: int) -> RequestTable:
    kv = KvCache(
        Shape(), slots=slots, max_context=64, dtype=torch.float32, device=torch.device("cpu")
    )
    return RequestTable(PrefixCache(kv, None))


def test_requests_run_in_order_of_arrival_when_slots_come_free() -> None:
    table = make_table(2)
    requests = [make_request(name) for name in "abcd"]
    for request in requests:
        table.add(request)
    table.admit(0.0)
    assert [r.request_id for r in table.running] == ["a", "b"]
    table.remove(requests[1])
    table.admit(1.0)
    assert [r.request_id for r in table.running] == ["a", "c"]
    assert [r.request_id for r in table.waiting] == ["d"]
    table.check()


def test_a_waiting_request_leaves_without_touching_slots() -> None:
    table = make_table(1)
    first, second = make_request("a"), make_request("b")
    table.add(first)
    table.add(second)
    table.admit(0.0)
    table.remove(second)
    table.check()
    assert "b" not in table
    assert "a" in table
