"""A network namespace with nothing but loopback: what runs in it cannot reach any other machine."""

import asyncio
import contextlib
import os
import shutil
import signal
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

START_S = 10.0


@dataclass(frozen=True)
class Loopback:
    """Processes join the namespace by its holder's process id."""

    holder_pid: int

    def argv(self, *command: str) -> list[str]:
        """`command`, inside."""
        target = f"--target={self.holder_pid}"
        return ["nsenter", target, "--user", "--net", "--preserve-credentials", "--", *command]

    def kill_all(self) -> None:
        """Everything inside, with what agents leave running behind them."""
        namespace = os.readlink(f"/proc/{self.holder_pid}/ns/net")
        for entry in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if os.readlink(entry / "ns/net") == namespace:
                    os.kill(int(entry.name), signal.SIGKILL)


@contextlib.asynccontextmanager
async def loopback() -> AsyncIterator[Loopback]:
    """The namespace lives as long as its holder, which ends when its input does.

    Raises AssertionError: this machine gives no namespace to this user.
    """
    for tool in ("unshare", "nsenter", "ip"):
        assert shutil.which(tool), f"{tool} is missing; install util-linux and iproute2"
    holder = await asyncio.create_subprocess_exec(
        *("unshare", "--map-root-user", "--net"),
        *("sh", "-c", "ip link set lo up && echo up && exec cat"),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    assert holder.stdin is not None
    assert holder.stdout is not None
    assert holder.stderr is not None
    try:
        async with asyncio.timeout(START_S):
            if await holder.stdout.readline() != b"up\n":
                said = (await holder.stderr.read()).decode()
                raise AssertionError(f"no user and network namespaces on this machine: {said}")
        space = Loopback(holder.pid)
        try:
            yield space
        finally:
            space.kill_all()
    finally:
        holder.stdin.close()
        await holder.wait()
