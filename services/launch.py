"""`ninfer-serve`: starts and supervises gateway, indexer, archive and engine on one machine."""

import dataclasses
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import structlog
import zmq

from services.archive.config import ArchiveConfig
from services.archive.config import resolve as resolve_archive
from services.engine.config import EngineConfig
from services.engine.models.config import parse_config
from services.gateway.config import GatewayConfig
from services.gateway.config import resolve as resolve_gateway
from services.indexer.config import IndexerConfig
from services.socket_folder import socket_folder
from shared import endpoints, lifecycle, logs, options, sockets
from shared.errors import ConfigError
from shared.messages import Ready, ServiceName
from shared.wire import Codec, WireError

# The engine first: it takes longest, and the gateway answers 503 until it is there.
SERVICES: dict[ServiceName, Any] = {
    "engine": EngineConfig,
    "indexer": IndexerConfig,
    "archive": ArchiveConfig,
    "gateway": GatewayConfig,
}
POLL_S = 0.1
MESSAGES_A_TURN = 100
BACK_OFF_S = (0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
STEADY_S = 10.0  # a service that came to serve and ran this long starts again without back-off
READY_S = 1800.0  # a start that takes longer hangs; large models load for minutes
BAD_CONFIG_STATUS = 2  # how lifecycle.run reports a ConfigError
ABOUT = (
    "Serves one local model to coding agents, with copies drafted from what it has already seen."
)
EXAMPLES = """examples:
  ninfer-serve --model DIR --ngram-draft-tokens 15
      copies up to 15 tokens a pass; the text stays what it is without copies
  ninfer-serve --model DIR --spec mtp --lm-head-draft
      the checkpoint's own drafter beside the copies
  ninfer-serve --model DIR --ngram-draft-tokens 63 --ngram-archive-mib 512 --ngram-native-sessions
      agents also copy from files that a compaction took out of their prompt
  ninfer-serve --model DIR --request-log-jsonl requests.jsonl
      `ninfer-log why requests.jsonl ID` says why a request was slow

docs/options.md has this list; ninfer-model fetch smollm2-135m prints a DIR to try."""
TERMINATE_GRACE_S = 10.0  # behind the gateway's own drain time


def serve_config() -> type:
    """One dataclass with the options of every service, each once, and `sockets` optional."""
    fields: dict[str, tuple[str, Any, Any]] = {}
    for kind in SERVICES.values():
        sections = options.groups(kind)
        for field in dataclasses.fields(kind):
            if field.name == "sockets":
                continue
            like = _like(field, sections[field.name])
            fields.setdefault(field.name, (field.name, field.type, like))
    required = [f for f in fields.values() if f[2].default is dataclasses.MISSING]
    optional = [f for f in fields.values() if f[2].default is not dataclasses.MISSING]
    socket_folder = options.option(
        None, "folder of the Unix sockets, mode 700; a temporary one if absent", group="Processes"
    )
    optional.append(("sockets", Path | None, socket_folder))
    return dataclasses.make_dataclass("ServeConfig", [*required, *optional], frozen=True)


def _like(field: "dataclasses.Field[Any]", section: str) -> Any:
    return dataclasses.field(default=field.default, metadata={**field.metadata, "group": section})


@dataclass
class Child:
    """One supervised process."""

    service: ServiceName
    argv: list[str]
    process: subprocess.Popen[bytes]
    started_s: float
    failures: int = 0  # quick exits in a row
    restart_at_s: float | None = None
    ready: bool = False
    was_ready: bool = False


class Supervisor:
    """Starts the children, watches them, restarts those that die, stops them together."""

    def __init__(
        self,
        channels: endpoints.Endpoints,
        argvs: dict[ServiceName, list[str]],
        *,
        drain_s: float,
        secrets: dict[str, str],
        ready_s: float = READY_S,
    ) -> None:
        self._ready_s = ready_s
        self._secrets = secrets  # by the environment, since others can read an argv
        self._grace_s = drain_s + TERMINATE_GRACE_S
        self._log = structlog.get_logger(service="launch")
        self._stopping = False
        self._hurrying = False
        self._channels = channels
        self._argvs = argvs
        context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._context = context
        self._inbox = sockets.bind(context, zmq.PULL, channels.supervisor)
        self._codec: Codec[Ready] = Codec(Ready)
        self.children: list[Child] = []

    def stop(self, *_: object) -> None:
        """The first time in order; the second time at once."""
        self._hurrying = self._stopping
        self._stopping = True

    def run(self, on_ready: Any) -> int:
        """Serves until told to stop, and leaves no child. Returns the exit status."""
        try:
            return self._supervise(on_ready)
        finally:
            self._stop_all()
            self._context.destroy(linger=0)
            for endpoint in dataclasses.astuple(self._channels):
                sockets.remove(endpoint)  # a killed service leaves its own

    def _supervise(self, on_ready: Any) -> int:
        for service, argv in self._argvs.items():
            process = _start(argv, self._secrets)
            self.children.append(Child(service, argv, process, time.monotonic()))
        announced = False
        status = 0
        while not self._stopping:
            self._hear()
            if not announced and all(child.ready for child in self.children):
                announced = True
                on_ready()
            for child in self.children:
                failed = self._watch(child)
                if failed is not None:
                    status, self._stopping = failed, True
        return status

    def _hear(self) -> None:
        """Waits a moment for a first message, and takes so many that a flood cannot hold it."""
        wait_ms = POLL_S * 1000
        for _ in range(MESSAGES_A_TURN):
            if not self._inbox.poll(wait_ms):
                return
            wait_ms = 0
            try:
                message = self._codec.decode(
                    [f.buffer for f in self._inbox.recv_multipart(copy=False)]
                )
            except WireError as exc:
                self._log.warning("garbage", channel="supervisor", error=str(exc))
                continue
            for child in self.children:
                if child.service == message.service and child.process.pid == message.pid:
                    if child.was_ready and not child.ready:
                        self._log.info("service_back", back=child.service)
                    child.ready = child.was_ready = True

    def _watch(self, child: Child) -> int | None:
        """Restarts a dead child when its back-off is over; a status ends the server."""
        now_s = time.monotonic()
        if child.restart_at_s is not None:
            if now_s >= child.restart_at_s:
                child.process, child.started_s = _start(child.argv, self._secrets), now_s
                child.restart_at_s = None
            return None
        status = child.process.poll()
        if status is None:
            if not child.ready and now_s - child.started_s > self._ready_s:
                self._log.error("service_never_ready", killed=child.service)
                child.process.kill()
            return None
        if status == BAD_CONFIG_STATUS and not child.was_ready:
            return status  # the service has said why; starting it again cannot help
        steady = child.ready and now_s - child.started_s > STEADY_S
        child.failures = 0 if steady else child.failures + 1
        child.ready = False
        wait_s = BACK_OFF_S[min(child.failures, len(BACK_OFF_S) - 1)]
        child.restart_at_s = now_s + wait_s
        self._log.error("service_died", died=child.service, status=status, restart_in_s=wait_s)
        return None

    def _stop_all(self) -> None:
        """The gateway first, so that its open requests drain while the engine still runs."""
        for child in reversed(self.children):
            if child.process.poll() is None:
                child.process.terminate()
                if not self._ends(child, self._grace_s):
                    self._log.error("service_killed", killed=child.service)
                    child.process.kill()
                    child.process.wait()

    def _ends(self, child: Child, within_s: float) -> bool:
        """Whether it does so in time, which is over at once when the owner hurries."""
        give_up_s = time.monotonic() + within_s
        while not self._hurrying and time.monotonic() < give_up_s:
            try:
                child.process.wait(POLL_S)
            except subprocess.TimeoutExpired:
                continue
            return True
        return child.process.poll() is not None


def _start(argv: list[str], secrets: dict[str, str]) -> subprocess.Popen[bytes]:
    # Passive waiting must be set before torch loads: a spinning OpenMP thread starves the others.
    environment = {"OMP_WAIT_POLICY": "PASSIVE", "KMP_BLOCKTIME": "0", **os.environ, **secrets}
    # A group of its own: a Ctrl-C in the terminal reaches the launcher alone, which stops in order.
    bind_to_parent = lifecycle.dies_with(os.getpid())
    return subprocess.Popen(argv, env=environment, process_group=0, preexec_fn=bind_to_parent)


def child_argvs(config: Any, folder: Path) -> dict[ServiceName, list[str]]:
    argvs: dict[ServiceName, list[str]] = {}
    for service, kind in SERVICES.items():
        if service == "archive" and not config.ngram_archive_mib:
            continue
        values = {
            name: {"sockets": folder, "api_key": None}.get(name, getattr(config, name))
            for name in options.flags(kind)
        }
        argvs[service] = [
            sys.executable,
            "-m",
            f"services.{service}",
            *options.render(kind(**values)),
        ]
    return argvs


def curl_line(config: GatewayConfig) -> str:
    key = " -H 'Authorization: Bearer YOUR_KEY'" if config.api_key else ""
    body = '{"messages":[{"role":"user","content":"Name three fruits."}],"stream":true}'
    url = f"{base_url(config)}/chat/completions"
    return f"curl -N {url} -H 'Content-Type: application/json'{key} -d '{body}'"


def base_url(config: GatewayConfig) -> str:
    host = f"[{config.host}]" if ":" in config.host else config.host
    return f"http://{host}:{config.port}/v1"


def serve(argv: Sequence[str]) -> None:
    config: Any = options.parse(
        serve_config(), argv, prog="ninfer-serve", about=ABOUT, examples=EXAMPLES
    )
    log = logs.configure("launch", level=config.log_level)
    if not (config.model / "config.json").is_file():
        raise ConfigError(
            f"--model {config.model} holds no config.json; `ninfer-model fetch smollm2-135m` "
            "prints the folder of the demo model"
        )
    parse_config(config.model)  # says what is wrong with the folder before three processes do
    resolve_archive(options.select(ArchiveConfig, config))
    gateway = resolve_gateway(options.select(GatewayConfig, config))
    secrets = {"NINFER_API_KEY": gateway.api_key} if gateway.api_key else {}
    with socket_folder(config.sockets) as folder:
        supervisor = Supervisor(
            endpoints.in_directory(folder),
            child_argvs(config, folder),
            drain_s=config.drain_s,
            secrets=secrets,
        )
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, supervisor.stop)

        def on_ready() -> None:
            log.info("ready", url=base_url(gateway))
            sys.stderr.write(f"\nTry it:\n  {curl_line(gateway)}\n\n")

        status = supervisor.run(on_ready)
    if status:
        raise SystemExit(status)


def main() -> None:
    lifecycle.run(serve)


if __name__ == "__main__":
    main()
