"""Options, sampling defaults, and the process itself."""

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx2 as httpx
import pytest
import zmq

from services.gateway import sampling
from services.gateway.config import GatewayConfig, resolve
from shared import sockets
from shared.endpoints import in_directory
from shared.errors import ConfigError


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"port": 0}, "--port"),
        ({"port": 70000}, "--port"),
        ({"host": "0.0.0.0"}, "--api-key"),
        ({"host": "192.168.1.2"}, "--api-key"),
        ({"host": "box.lan"}, "--api-key"),
        ({"api_key": ""}, "--api-key is empty"),
        ({"heartbeat_s": 0.0}, "--heartbeat-s"),
        ({"heartbeat_s": float("nan")}, "--heartbeat-s"),
        ({"max_body_mib": 0}, "--max-body-mib"),
        ({"default_max_tokens": 0}, "--default-max-tokens"),
        ({"slow_reader_s": -1.0}, "--slow-reader-s"),
        ({"drain_s": -1.0}, "--drain-s"),
        ({"request_log_jsonl": Path("/nowhere/log.jsonl")}, "--request-log-jsonl"),
    ],
)
def test_a_bad_option_is_named(config: GatewayConfig, changes: dict[str, Any], named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        resolve(replace(config, **changes))


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "::1", "127.0.0.2"])
def test_loopback_needs_no_key(config: GatewayConfig, host: str) -> None:
    assert resolve(replace(config, host=host)).api_key is None


def test_a_port_that_is_published_on_loopback_needs_no_key(config: GatewayConfig) -> None:
    published = replace(config, host="0.0.0.0", published_on_loopback=True)
    assert resolve(published).api_key is None


def test_the_key_may_come_from_the_environment(
    config: GatewayConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NINFER_API_KEY", "from-env")
    assert resolve(replace(config, host="0.0.0.0")).api_key == "from-env"
    assert resolve(replace(config, api_key="from-flag")).api_key == "from-flag"


def test_the_model_is_named_like_its_folder(config: GatewayConfig) -> None:
    assert resolve(replace(config, model_id=None)).model_id == "tiny"


def with_settings(config: GatewayConfig, folder: Path, settings: Any) -> GatewayConfig:
    (folder / "generation_config.json").write_text(json.dumps(settings))
    return replace(config, model=folder)


def test_sampling_defaults_come_from_options_then_the_model(
    config: GatewayConfig, tmp_path: Path
) -> None:
    settings = {"temperature": 0.7, "top_k": 20, "top_p": 0.8}
    found = sampling.defaults(with_settings(replace(config, top_k=5), tmp_path, settings))
    assert (found.temperature, found.top_k, found.top_p, found.min_p) == (0.7, 5, 0.8, 0.0)


def test_a_model_that_does_not_sample_is_greedy(config: GatewayConfig, tmp_path: Path) -> None:
    settings = {"do_sample": False, "temperature": 0.7}
    assert sampling.defaults(with_settings(config, tmp_path, settings)).temperature == 0.0


@pytest.mark.parametrize("value", [-1, "hot", True, float("nan"), 1e9])
def test_a_bad_sampling_default_of_the_model_is_named(
    config: GatewayConfig, tmp_path: Path, value: Any
) -> None:
    with pytest.raises(ConfigError, match="temperature"):
        sampling.defaults(with_settings(config, tmp_path, {"temperature": value}))


@pytest.mark.parametrize("value", [-1.0, float("nan"), 1e9])
def test_a_bad_sampling_option_is_named(config: GatewayConfig, value: float) -> None:
    with pytest.raises(ConfigError, match="--temperature"):
        sampling.defaults(replace(config, temperature=value))


@contextmanager
def gateway_process(config: GatewayConfig, port: int) -> Iterator["subprocess.Popen[str]"]:
    """The gateway alone, beside a stand-in for the launcher."""
    argv = [
        *(sys.executable, "-m", "services.gateway", "--port", str(port)),
        *("--model", str(config.model), "--sockets", str(config.sockets)),
    ]
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    supervisor = sockets.bind(context, zmq.PULL, in_directory(config.sockets).supervisor)
    process = subprocess.Popen(argv, stderr=subprocess.PIPE, text=True, env=os.environ.copy())
    try:
        yield process
    finally:
        process.kill()
        process.communicate()
        supervisor.close()
        context.term()


def test_a_port_in_use_stops_the_start_by_name(config: GatewayConfig) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with gateway_process(config, port) as process:
            _, stderr = process.communicate(timeout=30)
    assert process.returncode == 2
    assert stderr.splitlines()[-1] == f"error: port {port} is in use; choose another with --port"


def test_the_process_serves_503_without_an_engine_and_ends_on_sigterm(
    config: GatewayConfig,
) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with gateway_process(config, port) as process:
        status = None
        while status is None:
            assert process.poll() is None
            try:
                status = httpx.get(f"http://127.0.0.1:{port}/health", timeout=5).status_code
            except httpx.ConnectError:
                continue
        assert status == 503
        process.send_signal(signal.SIGTERM)
        _, stderr = process.communicate(timeout=10)
    assert process.returncode == 0, stderr


def test_the_gateway_never_loads_torch() -> None:
    code = "import sys, services.gateway.loop; sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=30)
