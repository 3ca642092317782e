"""`python -m bench first-light`: does copying pay on the demo model, and what does it cost?

Three real servers (copies off, 15 and 63 wide) stand side by side; the same requests go to each in
turn, so that a noisy machine disturbs all of them alike. Ratios are between medians of one run.
"""

import argparse
import difflib
import json
import statistics
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.server import BenchServer
from bench.texts import CONFIG, INVENTORY
from services.engine.checkpoint.fetch import default_folder

WIDTHS = {"off": 0, "15": 15, "63": 63}
PROSE = "Explain in detail how a steam engine works and why it changed the world."
PREFILL_TURNS = 4  # prompts a repeat
# Sampled: greedy, the demo model soon repeats itself, and copies would speed that up.
PROSE_SAMPLING: dict[str, Any] = {"temperature": 1.0, "seed": 7}


@dataclass(frozen=True)
class Bar:
    name: str
    value: float
    bar: float | None  # None: reported, not judged
    at_least: bool
    conditions: str

    @property
    def holds(self) -> bool:
        if self.bar is None:
            return True
        return self.value >= self.bar if self.at_least else self.value <= self.bar


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench first-light", description=__doc__)
    parser.add_argument("--model", type=Path, default=default_folder("smollm2-135m"))
    parser.add_argument("--json", action="store_true", help="one object a line")
    parser.add_argument("--quick", action="store_true", help="one repeat, shorter answers")
    options = parser.parse_args(argv)
    servers = {
        name: BenchServer.start(options.model, f"--ngram-draft-tokens={width}")
        for name, width in WIDTHS.items()
    }
    try:
        bars = measure(servers, repeats=1 if options.quick else 5, quick=options.quick)
    finally:
        for server in servers.values():
            server.stop()
    report(bars, as_json=options.json)
    return 0 if all(bar.holds for bar in bars) else 1


def measure(servers: dict[str, BenchServer], *, repeats: int, quick: bool) -> list[Bar]:
    output = 120 if quick else 320
    source = f"{INVENTORY}\n\n{CONFIG}"
    copy = file_copy(source)
    prose = [{"role": "user", "content": PROSE}]
    runs: dict[str, dict[str, list[dict[str, Any]]]] = {
        name: {"copy": [], "prose": [], "prefill": []} for name in servers
    }
    for repeat in range(repeats):
        for name, server in servers.items():
            progress(f"repeat {repeat + 1} of {repeats}: copies {name}")
            text, line = server.ask(copy, max_tokens=output)
            check_copy(text, source, name)
            runs[name]["copy"].append(line)
            runs[name]["prose"].append(
                server.ask(prose, max_tokens=output // 2, **PROSE_SAMPLING)[1]
            )
        # prompts differ by some per cent from one time to the next, so they are asked more often
        for turn in range(1 if quick else PREFILL_TURNS):
            pair = ("off", "15") if turn % 2 else ("15", "off")
            # a new beginning each time: what a server has computed before, it would not again
            unseen = long_prompt(PREFILL_TURNS * repeat + turn)
            prefill = [{"role": "user", "content": unseen}]
            for name in pair:
                runs[name]["prefill"].append(servers[name].ask(prefill, max_tokens=1)[1])
    condition = f"{output} output tokens, {repeats} repeats, bf16, one request"
    asked = len(runs["off"]["prefill"])
    tokens = f"{prompt_tokens(runs['off']['prefill'])} prompt tokens, {asked} repeats"
    speed = {name: median(runs[name]["copy"], decode_speed) for name in servers}
    progress(spreads(runs))
    return [
        Bar("copy_tokens_per_pass_15", tokens_per_pass(runs["15"]["copy"]), 5, True, condition),
        Bar("copy_tokens_per_pass_63", tokens_per_pass(runs["63"]["copy"]), 12, True, condition),
        Bar("copy_speed_15_vs_off", speed["15"] / speed["off"], 3, True, condition),
        Bar("copy_speed_63_vs_off", speed["63"] / speed["off"], 3, True, condition),
        Bar("prose_token_time_15_vs_off", ratio(runs, "prose", token_time), 1.03, False, condition),
        Bar("ttft_15_vs_off", ratio(runs, "prefill", first_token), 1.02, False, tokens),
        Bar("host_share_of_round", median(runs["15"]["prose"], host_share), 0.1, False, condition),
    ]


def spreads(runs: dict[str, dict[str, list[dict[str, Any]]]]) -> str:
    """Medians with the lowest and highest repeat, for judging the ratios."""
    lines = []
    for name, kinds in runs.items():
        for kind, unit, value in (
            ("copy", "tok/s", decode_speed),
            ("prose", "tok/s", decode_speed),
            ("prefill", "s to first token", first_token),
        ):
            if not kinds[kind]:
                continue
            taken = sorted(value(line) for line in kinds[kind])
            middle = statistics.median(taken)
            lines.append(
                f"copies {name:3} {kind:8} {middle:9.2f} ({taken[0]:.2f} to {taken[-1]:.2f}) {unit}"
            )
    return "\n".join(lines)


def file_copy(source: str) -> list[dict[str, str]]:
    """The third of three repetitions: the demo model is too small to start a copy by itself."""
    head = source[: len(source) // 12].rsplit("\n", 1)[0]
    prefilled = (source.rstrip("\n") + "\n\n\n") * 2 + head
    return [
        {"role": "user", "content": f"Repeat this file 4 times.\n\n{source}"},
        {"role": "assistant", "content": prefilled},
    ]


def long_prompt(which: int) -> str:
    """About 4,000 tokens that differ from line to line; no two prompts begin alike."""
    return f"List {which}.\n" + "\n".join(
        f"Entry {n}: the value of item {n * 37 % 1009} is {n * n}." for n in range(170)
    )


def check_copy(text: str, source: str, name: str) -> None:
    """A speed is worth nothing if the answer is a loop instead of the file."""
    matcher = difflib.SequenceMatcher(None, text, source, autojunk=False)
    longest = matcher.find_longest_match().size
    if longest < 0.8 * len(text):
        raise SystemExit(
            f"copies {name}: only {longest} of {len(text)} characters are a copy of the file"
        )


def tokens_per_pass(lines: list[dict[str, Any]]) -> float:
    return median(
        lines,
        lambda line: (
            (int(line["result"]["completion_tokens"]) - 1) / int(line["result"]["decode_passes"])
        ),
    )


def decode_speed(line: dict[str, Any]) -> float:
    seconds: float = line["timings_seconds"]["decode"]
    return (int(line["result"]["completion_tokens"]) - 1) / float(seconds)


def token_time(line: dict[str, Any]) -> float:
    return 1.0 / decode_speed(line)


def first_token(line: dict[str, Any]) -> float:
    return float(line["timings_seconds"]["ttft"])


def host_share(line: dict[str, Any]) -> float:
    seconds = line["timings_seconds"]
    return float(seconds["host"] / (seconds["host"] + seconds["forward"]))


def prompt_tokens(lines: list[dict[str, Any]]) -> int:
    return int(lines[0]["result"]["prompt_tokens"])


def median(lines: list[dict[str, Any]], value: Callable[[dict[str, Any]], float]) -> float:
    return statistics.median(value(line) for line in lines)


def ratio(runs: dict[str, dict[str, list[dict[str, Any]]]], kind: str, value: Any) -> float:
    return median(runs["15"][kind], value) / median(runs["off"][kind], value)


def report(bars: list[Bar], *, as_json: bool) -> None:
    for bar in bars:
        if as_json:
            fields = {"name": bar.name, "value": bar.value, "bar": bar.bar, "holds": bar.holds}
            print(json.dumps({**fields, "conditions": bar.conditions}))
        else:
            wanted, verdict = "", "reported"
            if bar.bar is not None:
                wanted = f"{'>=' if bar.at_least else '<='} {bar.bar}"
                verdict = "holds" if bar.holds else "FALLS SHORT"
            print(f"{bar.name:28} {bar.value:8.3f} {wanted:9} {verdict:12} {bar.conditions}")


def progress(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
