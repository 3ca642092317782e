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

from services.gateway.app import ROUTES
from services.gateway.openapi import OPERATIONS
from services.gateway.page.files import FILES as PAGE_FILES
from services.gateway.routes import normalise
from tests.gateway.agents import ROOM
from tests.gateway.conftest import Serve
from tests.scripted_engine import say

CHECKS = [
    checks.not_a_server_error,
    status_code_conformance,
    content_type_conformance,
]

ENDLESS = "/v1/ninfer/live"  # never ends by itself


def attack(url: str, examples: int) -> int:
    """Calls each operation with bodies of its schema; how many. It skips the document itself."""
    schema = schemathesis.openapi.from_url(f"{url}/openapi.json")
    count = 0
    for result in schema.get_all_operations():
        operation = result.ok()
        if operation.path == ENDLESS:
            continue
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
        assert await asyncio.to_thread(attack, served.url, 20) == len(OPERATIONS) - 2


async def test_the_document_has_every_operation_and_no_other(serve: Serve) -> None:
    """The page's files are no part of the API."""
    async with serve(say([]), indexer=False) as served:
        found = served.gateway.runner.app[ROUTES].operations()
    api = {(method, path) for method, path in found if path not in PAGE_FILES}
    described = {(o.method.upper(), normalise(o.path)) for o in OPERATIONS}
    assert described == api
    assert len(described) == len(OPERATIONS)
