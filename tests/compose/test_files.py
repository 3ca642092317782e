"""The compose files and the Dockerfile against each other and their documentation; no engine."""

import re
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]
VARIABLE = re.compile(r"\$\{(NINFER_\w+)|^\s*environment: \[(NINFER_\w+)\]", re.MULTILINE)
SERVICES = ("gateway", "engine", "indexer", "archive")


def services() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((ROOT / "compose.yaml").read_text())["services"]
    return found


def variables(*names: str) -> set[str]:
    texts = [(ROOT / name).read_text() for name in names]
    return {a or b for text in texts for a, b in VARIABLE.findall(text)}


def test_without_a_key_the_port_is_on_loopback_alone() -> None:
    for name, service in services().items():
        ports = service.get("ports", [])
        assert all(port.startswith("127.0.0.1:") for port in ports)
        assert bool(ports) is ("--published-on-loopback" in service["command"])
        assert bool(ports) is (name == "gateway")


def test_every_service_is_probed_limited_and_restarted() -> None:
    for name in SERVICES:
        service = services()[name]
        assert f"--service={name}" in service["healthcheck"]["test"]
        assert service["mem_limit"]
        assert service["restart"] == "unless-stopped"
        assert service["entrypoint"][-1] == f"services.{name}"


def test_every_variable_is_documented() -> None:
    used = variables("compose.yaml")
    example = (ROOT / ".env.example").read_text()
    assert set(re.findall(r"^#(NINFER_\w+)=", example, re.MULTILINE)) == used
    serving = (ROOT / "docs/serving.md").read_text()
    everywhere = variables("compose.yaml", "compose.cuda.yaml", "compose.model.yaml")
    assert {name for name in everywhere if f"`{name}`" not in serving} == set()


def test_the_image_and_make_setup_install_the_same_torch() -> None:
    dockerfile = (ROOT / "Dockerfile").read_text()
    makefile = (ROOT / "Makefile").read_text()
    pinned = re.search(r"^ARG TORCH_VERSION=(\S+)", dockerfile, re.MULTILINE)
    assert pinned is not None
    assert f"TORCH_VERSION := {pinned[1]}\n" in makefile


def test_the_sockets_belong_to_the_user_of_the_image() -> None:
    uid = re.search(r"useradd --uid (\d+)", (ROOT / "Dockerfile").read_text())
    volumes = yaml.safe_load((ROOT / "compose.yaml").read_text())["volumes"]
    assert uid is not None
    assert f"mode=0700,uid={uid[1]},gid={uid[1]}" in volumes["sockets"]["driver_opts"]["o"]
