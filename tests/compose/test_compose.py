"""The containers: what they may do, what they answer, and what happens when one of them dies."""

import json

import httpx2 as httpx
import pytest

from tests.compose.stack import SERVICES, Stack, wait_for
from tests.real.prompts import PROMPTS

pytestmark = [pytest.mark.compose, pytest.mark.e2e, pytest.mark.timeout(1500)]

COPYING = {
    "messages": next(p for p in PROMPTS if p.name == "numbered_code").messages,
    "temperature": 0,
    "max_tokens": 60,
}
LONG = {
    "messages": [{"role": "user", "content": "Count to a thousand."}],
    "max_tokens": 2000,
    "stream": True,
    "ignore_eos": True,
}


def text_of(answer: httpx.Response) -> str:
    assert answer.status_code == 200, answer.text
    text: str = answer.json()["choices"][0]["message"]["content"]
    return text


def streamed(stack: Stack) -> tuple[str, str]:
    """The id and the text of the copying request."""
    url, body = f"{stack.url}/chat/completions", COPYING | {"stream": True}
    with httpx.stream("POST", url, json=body, timeout=60) as answer:
        data = [line.removeprefix("data: ") for line in answer.iter_lines() if line]
    assert data[-1] == "[DONE]"
    chunks = [json.loads(line) for line in data[:-1]]
    deltas = [choice["delta"] for chunk in chunks for choice in chunk["choices"]]
    return chunks[0]["id"], "".join(delta.get("content") or "" for delta in deltas)


def test_containers_have_no_rights_that_they_do_not_need(stack: Stack) -> None:
    for service in SERVICES:
        container = stack.inspect(service)
        host = container["HostConfig"]
        assert container["Config"]["User"] == "ninfer"
        assert host["ReadonlyRootfs"]
        assert host["CapDrop"] == ["ALL"]
        assert "no-new-privileges:true" in host["SecurityOpt"]
        assert host["Memory"] > 0
        assert host["RestartPolicy"]["Name"] == "unless-stopped"
        assert (host["NetworkMode"] == "none") is (service != "gateway")
    ports = stack.inspect("gateway")["NetworkSettings"]["Ports"]
    assert ports == {"8080/tcp": [{"HostIp": "127.0.0.1", "HostPort": str(stack.port)}]}


def test_the_image_holds_no_compiler_no_cache_and_torch_for_the_cpu(stack: Stack) -> None:
    looked_for = "for name in gcc cc clang g++ make uv; do command -v $name; done; true"
    assert stack.inside("engine", "sh", "-c", looked_for) == ""
    caches = "find / -xdev -type d \\( -name .cache -o -path /var/cache/apt/archives/partial \\)"
    for folder in stack.inside("engine", "sh", "-c", f"{caches} 2>/dev/null; true").split():
        assert stack.inside("engine", "sh", "-c", f"ls -A {folder} 2>/dev/null; true") == ""
    version = "import torch; print(torch.version.cuda)"
    assert stack.inside("engine", "python", "-c", version).strip() == "None"


def test_the_sockets_are_in_memory_and_for_one_user(stack: Stack) -> None:
    assert stack.inside("gateway", "stat", "-f", "-c", "%T", "/run/ninfer").strip() == "tmpfs"
    assert stack.inside("gateway", "stat", "-c", "%a %U", "/run/ninfer").split() == [
        "700",
        "ninfer",
    ]


def test_a_streamed_request_through_the_published_port_copies(stack: Stack) -> None:
    request_id, text = streamed(stack)
    assert text.strip()
    (line,) = [
        line
        for line in stack.log_lines()
        if line["event"] == "request_done" and line["request"]["request_id"] == request_id
    ]
    assert line["speculative"]["ngram_accepted_tokens"] > 0
    assert line["result"]["decode_passes"] < line["result"]["completion_tokens"]


def test_the_request_log_is_read_in_its_container(stack: Stack) -> None:
    request_id, _ = streamed(stack)
    shown = stack.inside("gateway", "ninfer-log", "why", "/logs/requests.jsonl")
    assert request_id in shown


def test_another_host_name_is_refused_although_the_gateway_listens_everywhere(stack: Stack) -> None:
    for name in ("evil.example", "0.0.0.0", "gateway"):
        answer = httpx.get(f"{stack.url}/models", headers={"Host": f"{name}:{stack.port}"})
        assert answer.status_code == 403


@pytest.mark.parametrize("service", ["indexer", "archive"])
def test_an_accelerator_that_dies_changes_no_text_and_comes_back(
    stack: Stack, service: str
) -> None:
    before = text_of(stack.ask(COPYING))
    stack.crash(service)
    assert text_of(stack.ask(COPYING)) == before
    wait_for(stack.all_up)
    assert text_of(stack.ask(COPYING)) == before


def test_sessions_are_empty_and_generations_go_on_after_the_archive_died(stack: Stack) -> None:
    named = {"X-NInfer-Draft-Session": "s"}

    def generation() -> int | None:
        answer = stack.ask(COPYING | {"max_tokens": 4}, **named)
        found = answer.headers.get("X-NInfer-Draft-Generation")
        return None if found is None else int(found)

    def sessions() -> list[str]:
        listed = httpx.get(f"{stack.url}/ninfer/sessions", timeout=10).json()
        return [session["id"] for session in listed["data"]]

    before = wait_for(generation)
    assert len(sessions()) == 1
    stack.crash("archive")
    wait_for(stack.all_up)
    assert sessions() == []
    assert wait_for(generation) > before


def test_open_streams_get_an_error_when_the_engine_dies_and_it_comes_back(stack: Stack) -> None:
    with httpx.stream("POST", f"{stack.url}/chat/completions", json=LONG, timeout=60) as answer:
        lines = answer.iter_lines()
        next(lines)
        stack.crash("engine")
        last = [line for line in lines if line][-1]
    assert json.loads(last.removeprefix("data: "))["error"]["code"] == "engine_dead"
    wait_for(stack.is_whole)
    assert text_of(stack.ask(COPYING))


def test_the_engine_lets_go_of_the_requests_of_a_gateway_that_died(stack: Stack) -> None:
    with httpx.stream("POST", f"{stack.url}/chat/completions", json=LONG, timeout=60) as answer:
        lines = answer.iter_lines()
        next(lines)
        stack.crash("gateway")
        with pytest.raises(httpx.HTTPError):
            list(lines)
    wait_for(stack.is_whole)

    def is_idle() -> bool:
        health = stack.health()
        return health is not None and health.json()["running"] == 0

    wait_for(is_idle)
    assert text_of(stack.ask(COPYING))


def test_every_terminal_stands_once_in_the_log(stack: Stack) -> None:
    """Last but one: it judges all that the others asked, but for what died with the gateway."""
    ends: dict[str, int] = {}
    for line in stack.log_lines():
        if line["event"] in ("request_done", "request_error"):
            name = line["request"]["request_id"]
            ends[name] = ends.get(name, 0) + 1
    assert ends
    assert set(ends.values()) == {1}


def test_stopping_ends_every_service_by_itself(stack: Stack) -> None:
    """Last: the others need them. Exit status 137 would be a service that had to be killed."""
    stack.compose("stop", within_s=90)
    states = {service: stack.inspect(service)["State"]["ExitCode"] for service in SERVICES}
    assert states == dict.fromkeys(SERVICES, 0)
