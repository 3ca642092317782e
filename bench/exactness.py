"""`python -m bench exactness`: does anything that is drafted ever change a greedy token?

The engine, without its sockets, decodes mixed conversations a column at a time, with speculation
off, eight beside one another. Then it decodes them again in every way of `WAYS`: copies, copies and
neural drafts, and alone in an engine of one row. Each token must be the same. With `--exact off`
passes of different widths may round differently, which shows that the check can fail, and what
the exact arithmetic costs is measured beside it. With `--record FILE` a run that was stopped goes
on where it was. Exit status 1 if a token differs.
"""

import argparse
import json
import statistics
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

from bench import model_pass
from bench.exactness_workloads import Conversation, conversation
from bench.first_light import Bar, progress, report
from services.engine.checkpoint.fetch import default_folder
from services.engine.device import parse_dtype
from services.engine.models.load import load_model
from services.engine.probe import is_exact
from services.engine.training.corpus import looping
from shared.template import ChatTemplate
from tests.engine.local import LocalEngine, Output, generate

ROWS = 8
CONTEXT = 2048
# way of decoding -> how the engine drafts; those of `ALONE` decode one conversation of each group
# by itself, in passes from one column up
WAYS: dict[str, dict[str, Any]] = {
    "copies_63": {"width": 63, "policy": "fixed"},
    "adaptive_15": {"width": 15, "policy": "adaptive"},
    "mtp_3_adaptive_15": {"width": 15, "policy": "adaptive", "draft_tokens": 3},
    "alone": {"width": 0},
    "alone_copies_63": {"width": 63, "policy": "adaptive"},
}
ALONE = ("alone", "alone_copies_63")


@dataclass
class Group:
    """What one group of `ROWS` conversations came to."""

    number: int
    tokens: int = 0
    looping: int = 0  # tokens that end a run which stood in the answer before
    compared: Counter[str] = field(default_factory=Counter)  # by way
    differing: Counter[str] = field(default_factory=Counter)
    parted: Counter[str] = field(default_factory=Counter)  # conversations
    accepted: Counter[str] = field(default_factory=Counter)  # drafts


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench exactness", description=__doc__)
    parser.add_argument("--model", type=Path, default=default_folder("smollm2-135m"))
    parser.add_argument("--dtype", default="bfloat16", choices=("bfloat16", "float32"))
    parser.add_argument("--exact", default="on", choices=("on", "off"))
    parser.add_argument("--tokens", type=int, default=50_000, help="greedy tokens, at least")
    parser.add_argument("--output", type=int, default=500, help="tokens of an answer")
    parser.add_argument("--record", type=Path, help="results, one group a line; goes on from it")
    parser.add_argument("--json", action="store_true", help="one object a line")
    parser.add_argument("--quick", action="store_true", help="one group of 8, 100 tokens each")
    options = parser.parse_args(argv)
    if options.quick:
        options.tokens, options.output = 1, 100
    engine = LocalEngine(
        options.model,
        slots=ROWS,
        context=CONTEXT,
        dtype=parse_dtype(options.dtype),
        mtp=True,
        exact=options.exact == "on",
    )
    if options.exact == "on" and not is_exact(engine.model, engine.kv):
        sys.stderr.write("exactness: this machine's kernels round differently at other widths\n")
        return 1
    groups = list(decode(engine, options))
    report(list(bars(groups, options)), as_json=options.json)
    cost(options, 3 if options.quick else 15)
    return 1 if any(sum(group.differing.values()) for group in groups) else 0


def decode(engine: LocalEngine, options: argparse.Namespace) -> Iterator[Group]:
    """Groups until there are enough tokens; those that the record has are not decoded again."""
    conditions = {
        "model": str(options.model),
        "dtype": options.dtype,
        "exact": options.exact,
        "output": options.output,
        "ways": list(WAYS),
        "python": list(sys.version_info[:3]),
    }
    found = recorded(options.record, conditions)
    template = ChatTemplate.load(options.model, engine.tokenizer)
    tokens = number = 0
    while tokens < options.tokens:
        group = found.get(number)
        if group is None:
            began_s = time.monotonic()
            group = decode_group(engine, template, number, options.output)
            took_s = time.monotonic() - began_s
            progress(
                f"{tokens + group.tokens} of {options.tokens} tokens; the last {group.tokens} in "
                f"{took_s:.0f} s, differing {dict(+group.differing) or 'none'}"
            )
            if options.record is not None:
                with options.record.open("a") as file:
                    file.write(json.dumps({**conditions, **vars(group)}) + "\n")
        tokens += group.tokens
        number += 1
        yield group


def recorded(path: Path | None, conditions: dict[str, Any]) -> dict[int, Group]:
    """By number. A last line that was cut off is decoded again.

    Raises:
        SystemExit: the file's groups were decoded under other conditions.
    """
    found: dict[int, Group] = {}
    if path is None or not path.exists():
        return found
    for text in path.read_text().splitlines():
        try:
            line = json.loads(text)
        except json.JSONDecodeError:
            continue
        if {name: line.pop(name, None) for name in conditions} != conditions:
            raise SystemExit(f"{path} was recorded under other conditions; name another file")
        for name in ("compared", "differing", "parted", "accepted"):
            line[name] = Counter(line[name])
        found[line["number"]] = Group(**line)
    return found


def decode_group(engine: LocalEngine, template: ChatTemplate, number: int, output: int) -> Group:
    asked = [conversation(ROWS * number + row) for row in range(ROWS)]
    prompts = {c.name: template.encode(c.messages) for c in asked}
    plain = _run(engine, asked, prompts, output, width=0)
    group = Group(number, tokens=sum(len(o.token_ids) for o in plain.values()))
    for answer in plain.values():
        group.looping += int(looping(np.array(answer.token_ids, dtype=np.int32)).sum())
    for way, settings in WAYS.items():
        chosen = [asked[number % ROWS]] if way in ALONE else asked
        for name, answer in _run(engine, chosen, prompts, output, **settings).items():
            differing = distance(answer.token_ids, plain[name].token_ids)
            group.compared[way] += len(plain[name].token_ids)
            group.differing[way] += differing
            group.parted[way] += differing > 0
            drafting = answer.stats.speculative
            group.accepted[way] += sum(source.accepted_tokens for source in drafting.sources)
    return group


def distance(ours: Sequence[int], theirs: Sequence[int]) -> int:
    """Places that hold different tokens; a place that only one of them has counts too."""
    shared = sum(a != b for a, b in zip(ours, theirs, strict=False))
    return shared + abs(len(ours) - len(theirs))


def bars(groups: Sequence[Group], options: argparse.Namespace) -> Iterator[Bar]:
    tokens = sum(group.tokens for group in groups)
    loops = sum(group.looping for group in groups) / tokens
    sys.stderr.write(f"{tokens} tokens decoded plainly, {loops:.0%} of them in loops\n")
    for way in WAYS:
        total = {
            name: sum(getattr(group, name)[way] for group in groups)
            for name in ("compared", "differing", "parted", "accepted")
        }
        condition = (
            f"of {total['compared']} tokens, {total['accepted']} of them drafted; "
            f"{total['parted']} answers part; {options.dtype}, exact {options.exact}"
        )
        yield Bar(f"differing_{way}", total["differing"], 0, False, condition)


def cost(options: argparse.Namespace, repeats: int) -> None:
    """What exact arithmetic costs a pass, both kinds of model in turn."""
    dtype, device = parse_dtype(options.dtype), torch.device("cpu")
    benches = {
        exact: model_pass.Bench(
            load_model(options.model, dtype=dtype, device=device, exact=exact), "one thread"
        )
        for exact in (True, False)
    }
    times: dict[bool, dict[str, list[float]]] = {True: {}, False: {}}
    for repeat in range(repeats):
        progress(f"what exact costs: repeat {repeat + 1} of {repeats}")
        for exact, bench in benches.items():
            for name, taken in model_pass.measure(bench, 1).items():
                times[exact].setdefault(name, []).extend(taken)
    for name, taken in times[True].items():
        if name.startswith("pass"):
            ratio = statistics.median(taken) / statistics.median(times[False][name])
            line = {"name": f"exact against not, {name}", "ratio": round(ratio, 3)}
            print(json.dumps(line) if options.json else f"{line['name']:40} {ratio:8.3f} x")


def _run(
    engine: LocalEngine,
    asked: Sequence[Conversation],
    prompts: dict[str, np.ndarray],
    output: int,
    **settings: Any,
) -> dict[str, Output]:
    """No token stops an answer, so that all are equally long."""
    requests = [generate(c.name, prompts[c.name], output=output) for c in asked]
    texts = [text for c in asked for text in c.tool_texts]
    return engine.run(requests, tool_texts=texts, **settings)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
