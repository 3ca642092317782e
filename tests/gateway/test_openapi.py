"""Schemathesis against the served document: what it allows is answered as it says."""

import asyncio
from pathlib import Path
from typing import Any

import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis import checks
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    status_code_conformance,
)

from tests.gateway.agents import ROOM
from tests.gateway.conftest import Serve
from tests.scripted_engine import say

CHECKS = [
    checks.not_a_server_error,
    status_code_conformance,
    content_type_conformance,
]


def attack(url: str, examples: int) -> int:
    """Calls each operation with bodies of its schema; the number of operations."""
    schema = schemathesis.openapi.from_url(f"{url}/openapi.json")
    count = 0
    for result in schema.get_all_operations():
        operation = result.ok()
        count += 1

        @settings(
            max_examples=examples,
            deadline=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        @given(case=operation.as_strategy())
        def calls(case: Any) -> None:
            case.call_and_validate(base_url=url, checks=CHECKS, timeout=10)

        calls()
    return count


async def test_every_operation_answers_as_its_document_says(
    serve: Serve, tool_models: dict[str, Path]
) -> None:
    async with serve(say([]), model=tool_models["qwen"], engine=ROOM, indexer=False) as served:
        assert await asyncio.to_thread(attack, served.url, 20) >= 13
