"""Who may call: hosts, origins, keys."""

from typing import Any

import pytest

from services.gateway.routes import normalise
from tests.gateway.conftest import MESSAGES, Serve, Served
from tests.scripted_engine import say

KEY = "s3cret-key"


async def get(served: Served, path: str, **headers: str) -> tuple[int, dict[str, Any]]:
    async with served.http.get(served.url + path, headers=headers) as answer:
        return answer.status, await answer.json()


@pytest.mark.parametrize(
    "host",
    ["localhost", "LOCALHOST:8080", "127.0.0.1:1", "[::1]:8080", "localhost.", "box.lan:8080"],
)
async def test_own_hosts_are_served(serve: Serve, host: str) -> None:
    async with serve(say([]), indexer=False, allowed_hosts="a.example, Box.lan") as served:
        assert (await get(served, "/health", Host=host))[0] == 200


@pytest.mark.parametrize(
    "host", ["evil.example", "localhost.evil.example", "127.0.0.1.evil.example", "", "[", "0"]
)
async def test_other_hosts_are_refused(serve: Serve, host: str) -> None:
    async with serve(say([]), indexer=False) as served:
        status, body = await get(served, "/health", Host=host)
    assert (status, body["error"]["code"]) == (403, "forbidden")


@pytest.mark.parametrize("origin", ["https://evil.example", "null", "http://localhost:3000", ""])
async def test_pages_are_refused_before_any_work(serve: Serve, origin: str) -> None:
    async with serve(say([]), indexer=False) as served:
        url = f"{served.url}/v1/chat/completions"
        body = {"messages": MESSAGES}
        async with served.http.post(url, json=body, headers={"Origin": origin}) as answer:
            assert answer.status == 403
            assert "Access-Control-Allow-Origin" not in answer.headers
        assert not served.engine.generates


async def test_the_servers_own_page_may_call_and_no_rebound_name_is_its_own(serve: Serve) -> None:
    async with serve(say([]), indexer=False) as served:
        assert (await get(served, "/v1/models", Origin=served.url))[0] == 200
        named = {"Host": "localhost", "Origin": "http://localhost"}
        assert (await get(served, "/v1/models", **named))[0] == 200
        for origin in (served.url.replace("http", "https"), f"{served.url}0", "http://localhost"):
            assert (await get(served, "/v1/models", Origin=origin))[0] == 403
        rebound = {"Host": "evil.example", "Origin": "http://evil.example"}
        status, body = await get(served, "/v1/models", **rebound)
    assert status == 403
    assert "Host" in body["error"]["message"]


async def test_an_allowed_page_may_call_and_read(serve: Serve) -> None:
    page = {"Origin": "http://localhost:3000"}
    async with serve(
        say([]), indexer=False, allowed_origins="http://localhost:3000", api_key=KEY
    ) as served:
        url = f"{served.url}/v1/chat/completions"
        async with served.http.options(url, headers=page) as answer:
            assert answer.status == 204
            assert "POST" in answer.headers["Access-Control-Allow-Methods"]
        headers = page | {"Authorization": f"Bearer {KEY}"}
        async with served.http.post(url, json={"messages": MESSAGES}, headers=headers) as answer:
            assert answer.status == 200
            assert answer.headers["Access-Control-Allow-Origin"] == page["Origin"]


@pytest.mark.parametrize(
    "headers",
    [{"Authorization": f"Bearer {KEY}"}, {"authorization": f"bearer {KEY}"}, {"x-api-key": KEY}],
)
async def test_the_key_opens_in_both_headers(serve: Serve, headers: dict[str, str]) -> None:
    async with serve(say([]), indexer=False, api_key=KEY) as served:
        assert (await get(served, "/v1/models", **headers))[0] == 200


@pytest.mark.parametrize(
    "headers",
    [{}, {"Authorization": "Bearer wrong"}, {"Authorization": KEY}, {"x-api-key": f"{KEY}\xff"}],
)
async def test_without_the_key_only_health_answers(serve: Serve, headers: dict[str, str]) -> None:
    async with serve(say([]), indexer=False, api_key=KEY) as served:
        for path in ("/v1/models", "/v1/models/tiny", "/nothing"):
            status, body = await get(served, path, **headers)
            assert (status, body["error"]["code"]) == (401, "invalid_api_key")
        assert (await get(served, "/health", **headers))[0] == 200
        assert KEY not in served.log_path.read_text()


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/v1/models", "/models"),
        ("/models/", "/models"),
        ("//v1//v1/models", "/models"),
        ("/v1", "/"),
        ("/v1beta/models", "/v1beta/models"),
        ("/v1/models/org/name", "/models/org/name"),
    ],
)
def test_base_urls_are_normalised(path: str, expected: str) -> None:
    assert normalise(path) == expected


@pytest.mark.parametrize(
    "path",
    [
        "/v1/chat/completions",
        "/chat/completions/",
        "/v1/v1/chat/completions",
        "//v1/chat/completions",
    ],
)
async def test_every_base_url_reaches_the_completion(serve: Serve, path: str) -> None:
    async with (
        serve(say([]), indexer=False) as served,
        served.http.post(served.url + path, json={"messages": MESSAGES}) as answer,
    ):
        assert answer.status == 200


async def test_models_tell_the_runtime_context(serve: Serve) -> None:
    async with serve(say([]), indexer=False) as served:
        _, models = await get(served, "/v1/models")
        status, model = await get(served, "/v1/models/tiny")
    assert models["object"] == "list"
    assert models["data"] == [model]
    assert status == 200
    assert (model["id"], model["object"], model["owned_by"]) == ("tiny", "model", "ninfer")
    assert model["max_model_len"] == model["context_length"] == model["meta"]["n_ctx"] == 512


async def test_a_model_with_a_slash_is_found_by_its_encoded_name(serve: Serve) -> None:
    async with serve(say([]), indexer=False, model_id="org/tiny") as served:
        for name in ("org/tiny", "org%2Ftiny"):
            assert (await get(served, f"/v1/models/{name}"))[0] == 200
        status, body = await get(served, "/v1/models/tiny")
    assert (status, body["error"]["code"]) == (404, "model_not_found")


@pytest.mark.parametrize(
    "path", ["/nothing", "/api/tags", "/v1/embeddings", "/chat/completions/x", "/v1/responses/a/b"]
)
async def test_unknown_paths_get_json(serve: Serve, path: str) -> None:
    async with serve(say([]), indexer=False) as served:
        status, body = await get(served, path)
    assert (status, body["error"]["code"]) == (404, "not_found")


@pytest.mark.parametrize("path", ["/v1/messages/batches", "/v1/messages/batches/x/results"])
async def test_unknown_paths_of_anthropics_have_its_shape(serve: Serve, path: str) -> None:
    async with serve(say([]), indexer=False) as served:
        status, body = await get(served, path)
    assert (status, body["type"], body["error"]["type"]) == (404, "error", "not_found_error")
    assert body["request_id"].startswith("req_")


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("GET", "/v1/chat/completions", "POST"),
        ("POST", "/v1/models", "GET"),
        ("DELETE", "/v1/models/tiny", "GET"),
        ("OPTIONS", "/health", "GET"),
    ],
)
async def test_wrong_methods_get_json(serve: Serve, method: str, path: str, allowed: str) -> None:
    async with (
        serve(say([]), indexer=False) as served,
        served.http.request(method, served.url + path) as answer,
    ):
        assert answer.status == 405
        assert answer.headers["Allow"] == allowed
        assert (await answer.json())["error"]["code"] == "method_not_allowed"
        assert answer.headers["x-request-id"]
