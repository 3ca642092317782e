"""What no protocol here can do is refused by name, unless it asks for nothing."""

import json
from typing import Any

import pytest

from services.gateway.protocols import unserved
from shared.errors import BadParameter
from tests.gateway.conftest import MESSAGES, Serve, Served
from tests.scripted_engine import say

PROTOCOLS: dict[str, tuple[str, dict[str, Any], unserved.Neutral]] = {
    "chat": ("/v1/chat/completions", {"messages": MESSAGES}, unserved.CHAT),
    "responses": ("/v1/responses", {"input": "hi"}, unserved.RESPONSES),
    "messages": ("/v1/messages", {"messages": MESSAGES, "max_tokens": 9}, unserved.MESSAGES),
    "completions": ("/v1/completions", {"prompt": "hi"}, unserved.COMPLETIONS),
}


async def post(served: Served, path: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
    async with served.http.post(served.url + path, json=body) as answer:
        return answer.status, await answer.json()


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_every_unserved_field_is_refused_by_name(serve: Serve, protocol: str) -> None:
    path, asked, neutral = PROTOCOLS[protocol]
    async with serve(say([]), indexer=False) as served:
        for name in neutral:
            status, body = await post(served, path, asked | {name: {"anything": [7]}})
            assert status == 400, name
            if protocol == "messages":
                assert name in body["error"]["message"]
            else:
                assert body["error"]["param"] == name
        assert not served.engine.generates


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_what_asks_for_nothing_is_accepted(serve: Serve, protocol: str) -> None:
    path, asked, neutral = PROTOCOLS[protocol]
    chosen = {name: values[0] if values else None for name, values in neutral.items()}
    empty = {name: [] for name in neutral if name not in ("max_tokens",)}
    async with serve(say([]), indexer=False) as served:
        for fields in (chosen, empty):
            status, body = await post(served, path, asked | _fitting(fields))
            assert status == 200, body


def _fitting(fields: dict[str, Any]) -> dict[str, Any]:
    """Without those that stand in the protocol's own body under other types."""
    own = ("response_format", "structured_outputs", "guided_json", "guided_regex", "guided_choice")
    return {name: value for name, value in fields.items() if name not in own}


@pytest.mark.parametrize(
    ("fields", "is_refused"),
    [
        ({"best_of": 1}, False),
        ({"best_of": 1.0}, False),
        ({"best_of": True}, True),
        ({"best_of": 2}, True),
        ({"use_beam_search": False}, False),
        ({"use_beam_search": 0}, True),
        ({"logprobs": 0}, True),
        ({"suffix": ""}, False),
        ({"suffix": "x"}, True),
    ],
)
def test_true_is_no_number_and_zero_is_not_false(fields: dict[str, Any], is_refused: bool) -> None:
    raw = json.dumps(fields).encode()
    check = unserved.Unserved("completions", unserved.COMPLETIONS)
    if not is_refused:
        check.refuse(raw)
        return
    with pytest.raises(BadParameter) as refused:
        check.refuse(raw)
    assert refused.value.param == next(iter(fields))


@pytest.mark.parametrize(
    ("protocol", "name", "instead"),
    [
        ("chat", "functions", "tools"),
        ("responses", "max_tokens", "max_output_tokens"),
        ("messages", "stop", "stop_sequences"),
        ("messages", "response_format", "output_config.format"),
    ],
)
async def test_a_refusal_names_what_does_the_same(
    serve: Serve, protocol: str, name: str, instead: str
) -> None:
    path, asked, _ = PROTOCOLS[protocol]
    async with serve(say([]), indexer=False) as served:
        _, body = await post(served, path, asked | {name: 5})
    assert body["error"]["message"].endswith(f"; use {instead}")


async def test_a_deep_value_of_an_unserved_field_is_the_clients_fault(serve: Serve) -> None:
    raw = b'{"messages":[{"role":"user","content":"x"}],"grammar":' + b"[" * 9000 + b"]" * 9000
    async with (
        serve(say([]), indexer=False) as served,
        served.http.post(
            f"{served.url}/v1/chat/completions",
            data=raw + b"}",
            headers={"Content-Type": "application/json"},
        ) as answer,
    ):
        assert answer.status == 400
