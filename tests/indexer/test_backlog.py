import asyncio

import pytest

from services.indexer.backlog import Backlog
from shared.messages import BuildIndex
from tests.indexer.stand_in import int32


def request(request_id: str) -> BuildIndex:
    return BuildIndex(request_id=request_id, prompt_ids=int32(1, 2), tool_texts=(), predicted=None)


def filled(*request_ids: str, capacity: int = 3) -> Backlog:
    backlog = Backlog(capacity)
    for request_id in request_ids:
        backlog.add(request(request_id))
    return backlog


async def drain(backlog: Backlog) -> list[str]:
    return [(await backlog.next()).message.request_id for _ in backlog.waiting]


async def test_builds_start_in_the_order_of_arrival() -> None:
    assert await drain(filled("a", "b", "c")) == ["a", "b", "c"]


async def test_a_full_backlog_drops_the_oldest_and_names_it() -> None:
    backlog = filled("a", "b", "c")
    assert backlog.add(request("d")) == "a"
    assert await drain(backlog) == ["b", "c", "d"]


async def test_the_running_build_is_not_dropped_for_room() -> None:
    backlog = filled("a", "b", capacity=1)
    running = await backlog.next()
    backlog.add(request("c"))
    backlog.add(request("d"))
    assert not running.cancelled.is_set()


async def test_dropping_a_waiting_build_forgets_it() -> None:
    backlog = filled("a", "b")
    backlog.drop("a")
    assert await drain(backlog) == ["b"]


async def test_dropping_the_running_build_cancels_it() -> None:
    backlog = filled("a")
    running = await backlog.next()
    backlog.drop("a")
    assert running.cancelled.is_set()


async def test_dropping_an_unknown_request_is_harmless() -> None:
    backlog = filled("a")
    backlog.drop("unknown")
    assert backlog.waiting == ("a",)


async def test_a_second_build_of_a_request_replaces_the_first() -> None:
    backlog = filled("a", "b", "a")
    assert await drain(backlog) == ["b", "a"]


async def test_dropping_all_cancels_the_running_one_too() -> None:
    backlog = filled("a", "b")
    running = await backlog.next()
    backlog.drop_all()
    assert running.cancelled.is_set()
    assert backlog.waiting == ()


async def test_the_next_build_is_waited_for() -> None:
    backlog = Backlog(1)
    waiting = asyncio.create_task(backlog.next())
    with pytest.raises(asyncio.TimeoutError):
        await asyncio.wait_for(asyncio.shield(waiting), 0.01)
    backlog.add(request("a"))
    assert (await asyncio.wait_for(waiting, 5)).message.request_id == "a"
