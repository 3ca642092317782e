"""The real gateway in front of a scripted model, and agents beside it, where only loopback is."""

import asyncio
import contextlib
import json
import os
import signal
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from shared.endpoints import in_directory
from shared.tokenizer import Tokenizer
from tests.agents import installation
from tests.agents.clients import MODEL, Client, configuration
from tests.agents.loopback import Loopback, loopback
from tests.agents.scripted_model import ScriptedModel
from tests.model_folders import TEMPLATES, with_template
from tests.scripted_engine import ScriptedEngine

ROOT = Path(__file__).parents[2]
START_S = 20.0
TURN_S = 60.0
WAIT_FOR_HEALTH = """
import time, urllib.request
while True:
    try:
        urllib.request.urlopen("http://127.0.0.1:8080/health", timeout=5)
        break
    except OSError:
        time.sleep(0.05)
"""
PROBE = """
import urllib.request
body = b'{"messages": [{"role": "user", "content": "hi"}]}'
headers = {"Content-Type": "application/json", "Authorization": "Bearer unused"}
url = "http://127.0.0.1:8080/v1/chat/completions"
print(urllib.request.urlopen(urllib.request.Request(url, body, headers), timeout=10).status)
"""


@dataclass(frozen=True)
class Ran:
    """An agent that has ended."""

    status: int
    output: str


@dataclass
class Workplace:
    """One agent, its home and project folders, and the server that it talks to."""

    client: Client
    engine: ScriptedEngine
    model: ScriptedModel
    project: Path
    _space: Loopback
    _environment: dict[str, str]
    _log: Path

    async def start(self, *argv: str) -> asyncio.subprocess.Process:
        """In the namespace, as the leader of a process group; both outputs are one."""
        return await asyncio.create_subprocess_exec(
            *self._space.argv(*argv),
            cwd=self.project,
            env=self._environment,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            start_new_session=True,
        )

    async def begin(self, *options: str) -> asyncio.subprocess.Process:
        """The agent, with its task."""
        return await self.start(*self.client.argv, *options, self.model.task)

    async def run(self, *options: str) -> Ran:
        return await self.finish(await self.begin(*options))

    async def probe(self) -> Ran:
        """A request beside the agent's: its status code and body."""
        return await self.finish(await self.start(sys.executable, "-c", PROBE))

    async def finish(self, process: asyncio.subprocess.Process) -> Ran:
        """Ends it at the deadline, and fails with what it has said."""
        assert process.stdout is not None
        said = b""
        try:
            async with asyncio.timeout(TURN_S):
                while chunk := await process.stdout.read(1 << 16):
                    said += chunk
                return Ran(await process.wait(), said.decode(errors="replace"))
        except TimeoutError:
            raise AssertionError(f"no end within {TURN_S} s: {said.decode()[-4000:]}") from None
        finally:
            await kill(process)

    def log_lines(self, event: str) -> list[dict[str, Any]]:
        lines = [json.loads(line) for line in self._log.read_text().splitlines()]
        return [line for line in lines if line["event"] == event]


async def kill(process: asyncio.subprocess.Process) -> None:
    """With all that it started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    await process.wait()


@pytest.fixture(scope="session")
def programs() -> Path:
    """The folder of the agents' programs, installed if they are not yet."""
    try:
        return installation.install()
    except installation.InstallError as exc:
        pytest.fail(f"the agents cannot be installed: {exc}", pytrace=False)


@pytest.fixture(scope="session")
def agent_models(demo_model: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The demo model's tokenizer with templates that show tools, by the form of their calls."""
    root = tmp_path_factory.mktemp("models")
    return {
        form: with_template(demo_model, root / form, template)
        for form, template in TEMPLATES.items()
    }


@pytest.fixture
def short_folder() -> Iterator[Path]:
    """Unix socket paths are limited to about 100 bytes, which pytest's own folders may exceed."""
    with tempfile.TemporaryDirectory(prefix="ninfer-agents-", ignore_cleanup_errors=True) as name:
        yield Path(name)


Open = Callable[..., "contextlib.AbstractAsyncContextManager[Workplace]"]


@pytest.fixture
def workplace(programs: Path, agent_models: dict[str, Path], short_folder: Path) -> Open:
    @contextlib.asynccontextmanager
    async def open_workplace(
        client: Client, task: str, *, form: str = "qwen", **engine: Any
    ) -> AsyncIterator[Workplace]:
        home, project = short_folder / "home", short_folder / "project"
        project.mkdir()
        settings = configuration(client.title)
        for name, content in settings.files.items():
            (home / name).parent.mkdir(parents=True, exist_ok=True)
            (home / name).write_text(content)
        home.mkdir(exist_ok=True)
        environment = {
            "PATH": f"{programs}:{os.environ['PATH']}",
            "HOME": str(home),
            "LANG": "C.UTF-8",
            "PYTHONPATH": str(ROOT),
            **settings.environment,
        }
        folder = agent_models[form]
        model = ScriptedModel(Tokenizer.load(folder), form, task)
        sockets = short_folder / "sockets"
        channels = in_directory(sockets)
        limits = {"max_context": 131_072, "max_concurrency": 1, "max_waiting": 2} | engine
        async with contextlib.AsyncExitStack() as stack:
            space = await stack.enter_async_context(loopback())
            scripted = ScriptedEngine(channels, model, ngram_draft_tokens=0, **limits)
            await stack.enter_async_context(scripted)
            log = short_folder / "requests.jsonl"
            opened = Workplace(client, scripted, model, project, space, environment, log)
            await stack.enter_async_context(gateway(opened, folder, sockets, log))
            for command in settings.commands:
                ran = await opened.finish(await opened.start(*command))
                assert ran.status == 0, ran.output
            yield opened

    return open_workplace


@contextlib.asynccontextmanager
async def gateway(
    workplace: Workplace, model: Path, sockets: Path, log: Path
) -> AsyncIterator[None]:
    """The gateway's process, from the first healthy answer on."""
    process = await workplace.start(
        *(sys.executable, "-m", "services.gateway", f"--model={model}", f"--model-id={MODEL}"),
        *(
            f"--sockets={sockets}",
            f"--request-log-jsonl={log}",
            "--drain-s=0.1",
            "--api-key=unused",
        ),
    )
    try:
        healthy = await workplace.start(sys.executable, "-c", WAIT_FOR_HEALTH)
        async with asyncio.timeout(START_S):
            await healthy.wait()
        yield
    finally:
        await kill(process)
