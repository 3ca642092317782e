"""`python -m bench gateway`: is the gateway quick enough to be forgotten?

A real gateway process, a scripted engine and the clients share two cores. Lateness is from the
moment at which a token was due to the moment at which a client had its event.
"""

import argparse
import asyncio
import json
import os
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import structlog
import uvloop

from bench.first_light import Bar, progress, report
from bench.gateway.rig import Rig, paced, rig
from services.engine.checkpoint.fetch import default_folder
from services.gateway.metrics import Metrics
from services.gateway.outcome import Outcome
from services.gateway.request_log import RequestLog
from shared.messages import SourceStats
from shared.tokenizer import Tokenizer
from tests.model_folders import TEMPLATES, function, with_template
from tests.scripted_engine import Turn, hang, make_stats, say_text

CROWD: dict[str, Any] = {"max_concurrency": 2000, "max_waiting": 0, "max_context": 200_000}
ASK: dict[str, Any] = {
    "messages": [{"role": "user", "content": "hi"}],
    "stream": True,
    "chat_template_kwargs": {"enable_thinking": False},
}
STREAMS = 256
RATE = 50  # tokens a second of each stream
WIDE = 8  # tokens a delta
IDLE = 1000
PROMPT_TOKENS = 100_000
LOG_US = 1000  # one percent of a request of 100 tokens at 1,000 a second


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench gateway", description=__doc__)
    parser.add_argument("--model", type=Path, default=default_folder("smollm2-135m"))
    parser.add_argument("--json", action="store_true", help="one object a line")
    parser.add_argument("--quick", action="store_true", help="shorter runs")
    options = parser.parse_args(argv)
    with tempfile.TemporaryDirectory(prefix="ninfer-bench-") as folder:
        model = with_template(options.model, Path(folder) / "model", TEMPLATES["qwen"])
        bars = uvloop.run(measure(model, quick=options.quick))
    report(bars, as_json=options.json)
    return 0 if all(bar.holds for bar in bars) else 1


async def measure(model: Path, *, quick: bool) -> list[Bar]:
    seconds = 3 if quick else 10
    progress(f"{STREAMS} streams of {RATE} tokens a second")
    late_s, _ = await crowd(model, STREAMS, 1, seconds)
    progress(f"{STREAMS} streams, {WIDE} tokens a delta")
    _, cost_s = await crowd(model, STREAMS, WIDE, seconds)
    progress(f"{IDLE} idle streams")
    idle_bytes = await idle(model, 2 if quick else 5)
    progress("a tool call's long argument")
    growth = await long_argument(model)
    progress(f"a prompt of {PROMPT_TOKENS} tokens")
    prepare_s, tokens, pause_s = await long_prompt(model, 3 if quick else 9)
    progress("the request log")
    log_s = request_log(300 if quick else 3000)
    shape = f"{STREAMS} streams, {RATE} tokens a second each, {seconds} s"
    prompt = f"{tokens} tokens, median"
    return [
        Bar("event_lateness_p99_ms", 1000 * late_s, 100, False, f"{shape}, one a delta"),
        Bar("gateway_us_per_token", 1e6 * cost_s, 30, False, f"{shape}, {WIDE} a delta"),
        Bar("idle_streams_mb", idle_bytes / 1e6, 200, False, f"{IDLE} streams, heartbeats of 1 s"),
        Bar("argument_cost_growth", growth, 1.3, False, "CPU a byte, 200 KB against 50 KB"),
        Bar("prompt_preparation_ms", 1000 * prepare_s, 250, False, prompt),
        Bar("request_log_us", 1e6 * log_s, LOG_US, False, "both lines of a request, median"),
        Bar("pause_of_others_ms", 1000 * pause_s, 100, False, f"{prompt}; latest event meanwhile"),
    ]


def request_log(repeats: int) -> float:
    """Seconds that a request's two lines take, with what hears of them."""
    sources = tuple(
        SourceStats(kind=kind, rounds=9, drafted_tokens=99, accepted_tokens=50)
        for kind in ("prompt", "derived", "output")
    )
    request = {"request_id": "r", "client": "bench"}
    outcome = Outcome(
        reason="stop",
        stats=make_stats(4000, 500, sources),
        completion_tokens=500,
        reasoning_tokens=0,
        tool_calls=0,
        timings={"ttft": 0.1, "prepare": 0.01, "total": 1.0},
        archive={},
    )
    taken = []
    with (
        tempfile.TemporaryDirectory(prefix="ninfer-bench-") as folder,
        Path(os.devnull).open("w") as terminal,
    ):
        structlog.configure(logger_factory=structlog.PrintLoggerFactory(terminal))
        log = RequestLog(Path(folder) / "log.jsonl", {}, [Metrics("bench")], max_mib=256, keep=1)
        for _ in range(repeats):
            began_s = time.perf_counter()
            log.request_start(request)
            log.request_done(request, outcome)
            taken.append(time.perf_counter() - began_s)
        log.close()
        structlog.reset_defaults()
    return statistics.median(taken)


async def crowd(model: Path, streams: int, wide: int, seconds: int) -> tuple[float, float]:
    """The 99th percentile of lateness, and the gateway's CPU time a token."""
    due: dict[str, list[float]] = {}
    gate = asyncio.Event()

    async def script(turn: Turn) -> None:
        number = len(due)
        due[turn.generate.request_id] = []
        await gate.wait()
        await asyncio.sleep(number / streams * wide / RATE)  # spread over one period
        due[turn.generate.request_id] = await paced(
            turn, [x] * wide, rounds=seconds * RATE // wide, period_s=wide / RATE
        )

    async with rig(model, script, **CROWD) as gateway:
        x = int(gateway.tokenizer.encode_text("x")[0])
        clients = [await gateway.open(ASK | {"max_tokens": 10_000}) for _ in range(streams)]
        async with asyncio.timeout(60):
            while len(due) < streams:
                await asyncio.sleep(0.05)
        before_s = gateway.cpu_s()
        gate.set()
        async with asyncio.timeout(20 * seconds):
            await asyncio.gather(*(client.ended for client in clients))
        cost_s = gateway.cpu_s() - before_s
        lateness = [
            arrived - sent
            for client in clients
            for arrived, sent in zip(client.arrived_s[::wide], due[client.request_id], strict=True)
        ]
    lateness.sort()
    tokens = sum(len(client.arrived_s) for client in clients)
    return lateness[int(0.99 * len(lateness))], cost_s / tokens


async def idle(model: Path, seconds: float) -> int:
    """Bytes that the gateway holds with many streams that only beat."""
    async with rig(model, hang, "--heartbeat-s=1", **CROWD) as gateway:
        clients = [await gateway.open(ASK) for _ in range(IDLE)]
        async with asyncio.timeout(60):
            while any(client.received < 300 for client in clients):
                await asyncio.sleep(0.1)
        await asyncio.sleep(seconds)
        assert all(client.received > 600 for client in clients), "a stream had no heartbeat"
        return gateway.resident_bytes()


async def long_argument(model: Path) -> float:
    """CPU a byte of a 200 KB argument, in units of that of a 50 KB one."""
    tools = [function("write", path={"type": "string"}, content={"type": "string"})]
    line = "    value = compute(value)  # and so on\n"

    async def cost_s(gateway: Rig, size: int) -> float:
        content = line * (size // len(line))
        head = "<tool_call>\n<function=write>\n<parameter=content>\n"
        text = f"{head}{content}\n</parameter>\n</function>\n</tool_call>"
        gateway.engine.script = say_text(gateway.tokenizer, text, tokens=WIDE)
        before_s = gateway.cpu_s()
        client = await gateway.open(ASK | {"tools": tools, "max_tokens": 150_000})
        await client.ended
        assert client.received > size, "the argument did not come"
        return (gateway.cpu_s() - before_s) / size

    async with rig(model, hang, **CROWD) as gateway, asyncio.timeout(120):
        await cost_s(gateway, 50_000)  # warms up
        small = sum([await cost_s(gateway, 50_000) for _ in range(12)]) / 12
        large = sum([await cost_s(gateway, 200_000) for _ in range(3)]) / 3
    return large / small


async def long_prompt(model: Path, repeats: int) -> tuple[float, int, float]:
    """Seconds from body to ids, how many ids, and how late another stream was meanwhile."""
    tokenizer = Tokenizer.load(model)
    body = conversation(tokenizer)
    log = Path(tempfile.mkstemp(prefix="ninfer-bench-", suffix=".jsonl")[1])
    due: list[float] = []

    async def script(turn: Turn) -> None:
        if turn.generate.max_output_tokens == 1:
            await turn.finish("length")
        else:
            due.extend(await paced(turn, [x], rounds=int(repeats * RATE), period_s=1 / RATE))

    flags = (f"--request-log-jsonl={log}", "--heartbeat-s=60")
    async with rig(model, script, *flags, **CROWD) as gateway, asyncio.timeout(180):
        x = int(gateway.tokenizer.encode_text("x")[0])
        other = await gateway.open(ASK | {"max_tokens": 100_000})
        for number in range(repeats):
            body["messages"][0]["content"] += f" {number}"  # no two prompts begin alike
            client = await gateway.open(body | {"max_tokens": 1})
            await client.ended
            await asyncio.sleep(0.1)
        await other.ended
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    log.unlink()
    done = [e for e in lines if e["event"] == "request_done" and e["request"]["output_limit"] == 1]
    taken = sorted(line["timings_seconds"]["prepare"] for line in done)
    late = [at - sent for at, sent in zip(other.arrived_s, due, strict=True)]
    return taken[len(taken) // 2], done[0]["result"]["prompt_tokens"], max(late)


def conversation(tokenizer: Tokenizer) -> dict[str, Any]:
    """An agent's history: files that were read, and edits."""
    sources = sorted(Path(json.__file__).parent.parent.glob("*.py"))
    messages: list[dict[str, Any]] = [
        {"role": "system", "content": "You are a coding agent."},
        {"role": "user", "content": "Look at the standard library."},
    ]
    tokens = 0
    for number, path in enumerate(sources):
        text = path.read_text(encoding="utf-8", errors="replace")[:8000]
        arguments = json.dumps({"path": str(path.name)})
        call = {"id": f"c{number}", "function": {"name": "read", "arguments": arguments}}
        messages.append({"role": "assistant", "content": "", "tool_calls": [call]})
        messages.append({"role": "tool", "tool_call_id": f"c{number}", "content": text})
        tokens += len(tokenizer.encode_text(text)) + 60
        if tokens >= PROMPT_TOKENS:
            break
    assert tokens >= PROMPT_TOKENS, "the standard library is too small"
    return {"messages": messages, "tools": [function("read", path={"type": "string"})]}
