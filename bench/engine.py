"""`python -m bench engine`: one server under agents' loads, and other engines beside it.

Every figure is a ratio within this run: streams together against one alone, a second turn against
the first, long contexts against short ones, a pass of the model against reading its weights, ninfer
against transformers' `generate`, llama.cpp's server and vLLM on as many threads. A peer that is not
installed is said and left out. Exit status 1 if a bar falls short.
"""

import argparse
import signal
import statistics
import sys
import threading
import time
import uuid
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from bench import model_pass
from bench.first_light import (
    Bar,
    check_copy,
    decode_speed,
    file_copy,
    first_token,
    long_prompt,
    progress,
    report,
)
from bench.peers import llama_cpp, vllm
from bench.peers.contest import contest
from bench.server import BenchServer
from bench.texts import CONFIG, INVENTORY
from services.engine.checkpoint.fetch import default_folder
from services.engine.device import parse_dtype, resolve_device, set_threads
from services.engine.models.load import load_model

PARTS = ("server", "passes", "transformers", "peers")
THREADS = 1
START_S = 300.0  # the first start compiles the CPU kernels
STREAMS = 8
CHUNK = 512
QUESTION = "Explain in detail how a steam engine works and why it changed the world."
SAMPLED = {"temperature": 1.0}  # greedy, the demo model loops, and copies would speed that up


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench engine", description=__doc__)
    parser.add_argument("--model", type=Path, default=default_folder("smollm2-135m"))
    parser.add_argument("--part", action="append", choices=PARTS, help="only this; may be repeated")
    parser.add_argument(
        "--llama-server", type=Path, default=llama_cpp.default_server(), metavar="PATH"
    )
    parser.add_argument(
        "--vllm", type=Path, default=vllm.default_python(), metavar="PYTHON",
        help="the interpreter of the environment that has it",
    )  # fmt: skip
    parser.add_argument("--json", action="store_true", help="one object a line")
    parser.add_argument("--quick", action="store_true", help="one repeat, shorter answers")
    options = parser.parse_args(argv)
    # ending by a signal stops the servers too
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    parts = options.part or PARTS
    repeats, output = (1, 48) if options.quick else (3, 128)
    bars: list[Bar] = []
    if "server" in parts or "transformers" in parts:
        bars += under_load(options.model, parts, repeats, output)
    if "passes" in parts:
        bars += passes(options.model, 7 if options.quick else 31)
    if "peers" in parts:
        bars += contest(
            options.model,
            llama_server=options.llama_server,
            vllm_python=options.vllm,
            threads=THREADS,
            repeats=repeats,
            output=output,
        )
    report(bars, as_json=options.json)
    return 0 if all(bar.holds for bar in bars) else 1


def under_load(model: Path, parts: Sequence[str], repeats: int, output: int) -> list[Bar]:
    bars: list[Bar] = []
    ours: dict[str, float] = {}
    server = BenchServer.start(
        model,
        "--ngram-draft-tokens=63",
        f"--max-concurrency={STREAMS}",
        f"--prefill-chunk={CHUNK}",
        f"--threads={THREADS}",
        start_s=START_S,
    )
    try:
        if "server" in parts:
            bars += [
                streams(server, repeats, output),
                second_turn(server, repeats),
                long_context(server, repeats, output),
                stall(server, repeats),
            ]
        if "transformers" in parts:
            ours = own_speeds(server, repeats, output)
    finally:
        server.stop()
    return bars + (against_transformers(model, ours, output) if ours else [])


def passes(path: Path, repeats: int) -> list[Bar]:
    """A pass of the model by its width, at 500 tokens of context; widths are only judged where the
    CPU multiplies bf16 in tiles, since elsewhere arithmetic decides from 16 columns on."""
    progress("passes: filling the context")
    set_threads(THREADS)
    model = load_model(path, dtype=parse_dtype("bfloat16"), device=resolve_device("cpu"))
    bench = model_pass.Bench(model, "bf16")
    bench.check()
    times = model_pass.measure(bench, repeats)
    context = model_pass.CONTEXTS[0]
    taken = {w: statistics.median(times[model_pass.label(w, context)]) for w in (1, 16, 64)}
    read = statistics.median(times["read the weights"])
    condition = f"{context} tokens of context, one thread, {repeats} repeats"
    tiles = model_pass.has_tiles()
    return [
        Bar("pass_1_vs_reading_weights", taken[1] / read, 1.8, False, condition),
        Bar("pass_16_vs_1", taken[16] / taken[1], 1.3 if tiles else None, False, condition),
        Bar("pass_64_vs_1", taken[64] / taken[1], 1.7 if tiles else None, False, condition),
    ]


def streams(server: BenchServer, repeats: int, output: int) -> Bar:
    """Tokens a second of all streams together, against those of one alone."""
    alone: list[float] = []
    together: list[float] = []
    for repeat in range(repeats):
        progress(f"streams: repeat {repeat + 1} of {repeats}")
        for count, found in ((1, alone), (STREAMS, together)):
            lines: list[dict[str, Any]] = []
            ask = _prose(server, output, lines)
            began_s = time.monotonic()
            in_parallel([ask] * count)
            tokens = sum(line["result"]["completion_tokens"] for line in lines)
            found.append(tokens / (time.monotonic() - began_s))
    ratio = statistics.median(together) / statistics.median(alone)
    condition = f"{output} tokens each, {repeats} repeats"
    return Bar(f"{STREAMS}_streams_vs_1", ratio, 4, True, condition)


def second_turn(server: BenchServer, repeats: int) -> Bar:
    """Time to first token of a conversation's second turn against its first."""
    ratios = []
    for repeat in range(repeats):
        progress(f"second turn: repeat {repeat + 1} of {repeats}")
        salt = {"ninfer": {"cache_salt": uuid.uuid4().hex}}
        messages = [{"role": "user", "content": long_prompt(repeat)}]
        text, first = server.ask(messages, max_tokens=16, **salt)
        messages += [
            {"role": "assistant", "content": text},
            {"role": "user", "content": "And which entry has the largest value?"},
        ]
        _, second = server.ask(messages, max_tokens=16, **salt)
        ratios.append(first_token(second) / first_token(first))
    tokens = first["result"]["prompt_tokens"]
    condition = f"{tokens} prompt tokens, {repeats} repeats"
    return Bar("second_turn_ttft_vs_first", statistics.median(ratios), 0.1, False, condition)


def long_context(server: BenchServer, repeats: int, output: int) -> Bar:
    """Plain decoding behind 6,000 tokens against 500."""
    speeds: dict[int, list[float]] = {500: [], 6000: []}
    for repeat in range(repeats):
        progress(f"long context: repeat {repeat + 1} of {repeats}")
        for tokens, found in speeds.items():
            messages = [{"role": "user", "content": _filler(tokens) + QUESTION}]
            found.append(decode_speed(server.ask(messages, **_plain(output))[1]))
    ratio = statistics.median(speeds[6000]) / statistics.median(speeds[500])
    return Bar("decode_at_6000_vs_500", ratio, 0.6, True, f"{output} tokens, {repeats} repeats")


def stall(server: BenchServer, repeats: int) -> Bar:
    """The worst gap of a running stream while 6,000 tokens prefill, in chunks of that prefill."""
    gaps = []
    for repeat in range(repeats):
        progress(f"stall: repeat {repeat + 1} of {repeats}")
        lines: list[dict[str, Any]] = []
        times: list[float] = []

        def talk(times: list[float] = times) -> None:
            times += server.stream([{"role": "user", "content": QUESTION}], **_plain(256))

        def prefill(lines: list[dict[str, Any]] = lines, times: list[float] = times) -> None:
            time.sleep(1.0)  # the stream is under way; its gaps before do not count
            salted = {"ninfer": {"cache_salt": uuid.uuid4().hex}}
            messages = [{"role": "user", "content": _filler(6000)}]
            lines.append(server.ask(messages, max_tokens=1, **salted)[1])

        in_parallel([talk, prefill])
        seconds, tokens = (
            lines[0]["timings_seconds"]["prefill"],
            lines[0]["result"]["prompt_tokens"],
        )
        chunk_s = seconds / (tokens / CHUNK)
        gaps.append(max(b - a for a, b in pairwise(times)) / chunk_s)
    condition = f"chunks of {CHUNK}, {repeats} repeats"
    return Bar("worst_gap_in_chunks", statistics.median(gaps), 2, False, condition)


def own_speeds(server: BenchServer, repeats: int, output: int) -> dict[str, float]:
    """Tokens a second on prose without drafts, and on a file copy."""
    source = f"{INVENTORY}\n\n{CONFIG}"
    plain, copy = [], []
    for repeat in range(repeats):
        progress(f"own speed: repeat {repeat + 1} of {repeats}")
        messages = [{"role": "user", "content": QUESTION}]
        plain.append(decode_speed(server.ask(messages, **_plain(output))[1]))
        text, line = server.ask(file_copy(source), max_tokens=2 * output)
        check_copy(text, source, "on")
        copy.append(decode_speed(line))
    return {"plain": statistics.median(plain), "copy": statistics.median(copy)}


def against_transformers(model: Path, ours: dict[str, float], output: int) -> list[Bar]:
    try:
        from bench.transformers_peer import TransformersPeer  # noqa: PLC0415 an optional peer
    except ImportError as exc:
        progress(f"transformers is not installed, so nothing is compared with it: {exc}")
        return []
    progress("transformers: loading")
    peer = TransformersPeer(model)
    messages = [{"role": "user", "content": QUESTION}]
    plain = peer.decode_speed(messages, output)
    copy = peer.decode_speed(
        file_copy(f"{INVENTORY}\n\n{CONFIG}"), 2 * output, prompt_lookup_num_tokens=10
    )
    condition = "bf16, one thread on each side"
    return [
        Bar("plain_vs_transformers", ours["plain"] / plain, 1.5, True, condition),
        Bar("copy_vs_prompt_lookup", ours["copy"] / copy, 3, True, condition),
    ]


def in_parallel(tasks: Sequence[Callable[[], object]]) -> None:
    """Raises the first failure."""
    failures: list[BaseException] = []

    def run(task: Callable[[], object]) -> None:
        try:
            task()
        except BaseException as exc:  # noqa: BLE001 raised again below
            failures.append(exc)

    threads = [threading.Thread(target=run, args=(task,)) for task in tasks]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]


def _plain(output: int) -> dict[str, Any]:
    return {"max_tokens": output, "ninfer": {"speculation": False}, **SAMPLED}


def _prose(server: BenchServer, output: int, lines: list[dict[str, Any]]) -> Callable[[], None]:
    def ask() -> None:
        messages = [{"role": "user", "content": QUESTION}]
        lines.append(server.ask(messages, **_plain(output))[1])

    return ask


def _filler(tokens: int) -> str:
    """About so many tokens that differ from line to line."""
    lines = (
        f"Entry {n}: item {n * 37 % 1009} weighs {n * n} grams.\n" for n in range(tokens // 17)
    )
    return "".join(lines)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
