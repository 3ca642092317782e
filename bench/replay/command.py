"""`python -m bench replay`: every copy drafter on real edits, without a model.

The target's output is known, so each round costs only the drafter: it proposes, the longest equal
prefix is accepted, the target adds one token. Tasks come from pairs of released versions of public
Python packages, fetched when the benchmark runs. `python -m bench replay learn` learns the adaptive
policy's priors instead.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import numpy as np
from rich.progress import Progress

from bench.replay import learn
from bench.replay.bars import (
    REFERENCE_COST,
    YARDSTICK,
    YARDSTICK_TOKENS_PER_PASS,
    judge,
    judge_host,
)
from bench.replay.contenders import NEURAL_TOKENS, Contender, contenders
from bench.replay.neural import CoinDrafter
from bench.replay.ours import SourceBuilder
from bench.replay.packages import MEASURE_PAIRS, PackagePair, descriptions, fetch
from bench.replay.report import ALL, Line, line, plot, show, write_csv
from bench.replay.round import Outcome, replay
from bench.replay.tasks import KINDS, POOLED, Task, TaskMaker, duplicate_share
from services.engine.checkpoint.fetch import default_folder
from shared.template import ChatTemplate
from shared.tokenizer import Tokenizer

LONG_CONTEXT = 32_000  # tokens
DEFAULT_TASKS, QUICK_TASKS = 25, 4  # of each kind
PLOT_SUFFIXES = (".svg", ".png")
READING = f"""
reading the table:
  a kind's column   tokens per pass: output tokens over passes of the model
  waste             rejected drafts for each token of output
  x at C            modelled speed against no drafting, if a pass costs 1 and each drafted
                    column C more; `at C` behind a drafter's name is the cost it was told
  us, p99           the drafter's own microseconds a proposal, median and 99th percentile

reading the bars (value, bar; exit status 1 if one falls short):
  how far tokens go depends on the packages, so the three absolute bars of tokens per pass are
  scaled: by what `{YARDSTICK}` reaches in this run, over the
  {YARDSTICK_TOKENS_PER_PASS:g} that it reached on the edits where the bars were set.
"""


def main(argv: Sequence[str]) -> int:
    if argv[:1] == ["learn"]:
        return learn.main(argv[1:])
    options = _parse(argv)
    if (refusal := _refusal(options)) is not None:
        print(f"error: {refusal}", file=sys.stderr)
        return 2
    tokenizer = Tokenizer.load(options.model)
    template = ChatTemplate.load(options.model, tokenizer)
    try:
        pairs = [PackagePair.parse(text) for text in options.pairs or MEASURE_PAIRS]
        edits = fetch(pairs)
        maker = TaskMaker(tokenizer, template, edits, descriptions(pairs))
        tasks = maker.make(QUICK_TASKS if options.quick else options.tasks or DEFAULT_TASKS)
    except (ValueError, RuntimeError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    if not options.json:
        output = sum(len(task.output_ids) for task in tasks)
        print(f"{len(edits)} edited files, {len(tasks)} tasks, {output:,} output tokens")
    sources = SourceBuilder(tokenizer)
    entries = contenders(sources, tokenizer.special_ids)
    lines = run(entries, tasks, show_progress=not options.json)
    long = maker.make_long(3 if options.quick else 14, LONG_CONTEXT)
    bars = [*judge(lines), *judge_host(*host_time(sources, tokenizer.special_ids, long))]
    if options.csv:
        write_csv(lines, options.csv)
    if options.plot:
        plot(lines, options.plot)
    if options.json:
        for entry in lines:
            print(json.dumps(asdict(entry)))
    else:
        show(lines)
    for bar in bars:
        if options.json:
            print(json.dumps(asdict(bar)))
        else:
            verdict = "" if bar.holds else "  FALLS SHORT"
            print(f"{bar.name:76}{bar.value:>9.3f}{bar.bar:>9.3f}{verdict}")
    return 0 if all(bar.holds for bar in bars) else 1


def _refusal(options: argparse.Namespace) -> str | None:
    """What is wrong with the options; found now and not after a run of many minutes."""
    if options.tasks is not None and options.quick:
        return f"--quick means {QUICK_TASKS} tasks of each kind; give it or --tasks, not both"
    if options.tasks is not None and options.tasks < 1:
        return f"--tasks {options.tasks} is out of range; use 1 or more"
    if options.plot and options.plot.suffix not in PLOT_SUFFIXES:
        return f"--plot {options.plot} must end in {' or '.join(PLOT_SUFFIXES)}"
    for flag, path in (("--csv", options.csv), ("--plot", options.plot)):
        if path is None:
            continue
        try:
            existed = path.exists()
            path.open("a").close()
            if not existed:
                path.unlink()
        except OSError as error:
            return f"{flag} {path} cannot be written: {error.strerror}"
    return None


def host_time(
    sources: SourceBuilder, special_ids: frozenset[int], tasks: Sequence[Task]
) -> tuple[float, float]:
    """Microseconds of one proposal, median and 99th percentile, by the widest adaptive drafter."""
    (entry,) = (
        e
        for e in contenders(sources, special_ids)
        if (e.role, e.width, e.neural, e.tuned_for) == ("ninfer", 63, False, REFERENCE_COST)
    )
    taken = Outcome()
    for task in tasks:
        taken.add(replay(task, entry.drafter, entry.width))
    micros = 1e6 * np.asarray(taken.proposal_s)
    return float(np.median(micros)), float(np.percentile(micros, 99))


def run(entries: Sequence[Contender], tasks: Sequence[Task], *, show_progress: bool) -> list[Line]:
    shares: dict[str, list[float]] = {}
    for task in tasks:
        shares.setdefault(task.kind, []).append(duplicate_share(task.output_ids))
    shares[ALL] = [share for kind in POOLED for share in shares.get(kind, ())]
    lines = []
    with Progress(transient=True, disable=not show_progress) as progress:
        bar = progress.add_task("", total=len(entries) * len(tasks))
        for entry in entries:
            progress.update(bar, description=entry.drafter.name)
            outcomes: dict[str, Outcome] = {}
            for task in tasks:
                # the adaptive policy asks its own
                weighs = entry.tuned_for is not None
                coin = CoinDrafter(NEURAL_TOKENS) if entry.neural and not weighs else None
                outcome = replay(task, entry.drafter, entry.width, coin)
                for kind in (task.kind, ALL) if task.kind in POOLED else (task.kind,):
                    outcomes.setdefault(kind, Outcome()).add(outcome)
                progress.advance(bar)
            lines += [
                line(entry, kind, outcomes[kind], _mean(shares[kind]))
                for kind in (*KINDS, ALL)
                if kind in outcomes
            ]
    return lines


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _parse(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench replay",
        description=__doc__,
        epilog=READING,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--pairs",
        nargs="+",
        metavar="NAME:OLD:NEW",
        help=f"package pairs (default: {' '.join(MEASURE_PAIRS)})",
    )
    parser.add_argument("--tasks", type=int, help=f"of each kind (default: {DEFAULT_TASKS})")
    parser.add_argument("--model", type=Path, default=default_folder("smollm2-135m"))
    parser.add_argument("--quick", action="store_true", help=f"{QUICK_TASKS} tasks of each kind")
    parser.add_argument("--json", action="store_true", help="one object a line")
    parser.add_argument("--csv", type=Path, metavar="FILE", help="writes the rows as CSV too")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="writes a .svg or .png plot")
    return parser.parse_args(argv)
