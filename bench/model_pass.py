"""`python -m bench model-pass`: what one pass of the model costs, by its width and its context.

A pass of one column is compared with reading as many bytes as the weights have, wider passes with
that of one column, all in turns within one run. Prints a table, or with --json one object a line.
Exit status 1 if a bar falls short.
"""

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import torch

from services.engine.batch import Batch, RowSpan
from services.engine.checkpoint.fetch import default_folder
from services.engine.device import parse_dtype, resolve_device, set_threads, synchronise
from services.engine.kv import KvCache
from services.engine.models.llama import LlamaModel
from services.engine.models.load import load_model
from services.engine.models.weight_form import FORMS, resolve_form
from shared.errors import ConfigError

WIDTHS = (1, 16, 64)
CONTEXTS = (500, 4000)
PREFILL_COLUMNS = 512
READ_BAR = 2.5
WIDTH_BARS = {16: 1.4}
# wide against narrow passes; measured 1e-6 and 0.005
TOLERANCE = {torch.float32: 1e-4, torch.bfloat16: 0.03}


@dataclass(frozen=True)
class Row:
    name: str
    value: float
    bar: float | None  # None: reported, not judged
    holds: bool
    unit: str
    conditions: str


class Bench:
    """One model with `max(CONTEXTS)` tokens of random context in its only slot."""

    def __init__(self, model: LlamaModel, conditions: str) -> None:
        self.model = model
        self.conditions = conditions
        self._kv = KvCache(
            model.config,
            slots=1,
            max_context=max(CONTEXTS) + max(WIDTHS),
            dtype=model.dtype,
            device=model.device,
        )
        generator = torch.Generator().manual_seed(0)
        size = (self._kv.max_context,)
        ids = torch.randint(0, model.config.vocab_size, size, generator=generator)
        self._ids = ids.to(model.device)
        self._places = torch.arange(self._kv.max_context, device=model.device)
        self._weights = torch.zeros(model.weight_bytes // 4, device=model.device)
        for start in range(0, max(CONTEXTS), PREFILL_COLUMNS):
            self.run(start, min(PREFILL_COLUMNS, max(CONTEXTS) - start))

    def run(self, start: int, columns: int) -> torch.Tensor:
        here = slice(start, start + columns)
        rows = (RowSpan(slot=0, start=start, columns=columns, offset=0),)
        batch = Batch(self._ids[here], self._places[here], rows, self._places[:columns])
        return self.model.forward(batch, self._kv).logits

    def read(self) -> None:
        self._weights.sum()

    def check(self) -> None:
        """Raises `ConfigError` if a wide pass does not say what narrow ones say."""
        for context in CONTEXTS:
            narrow = torch.cat([self.run(context + i, 1) for i in range(16)])
            wide = self.run(context, 16)
            error = float((wide - narrow).norm() / narrow.norm())
            if not error < TOLERANCE[self.model.dtype]:
                raise ConfigError(f"a pass of 16 columns is off by {error:.1e}; no speed is given")


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="bench model-pass", description=__doc__)
    parser.add_argument("--json", action="store_true", help="one JSON object a line")
    parser.add_argument("--quick", action="store_true", help="fewer repeats")
    parser.add_argument("--model", type=Path, default=default_folder("smollm2-135m"))
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--dtype", default="bfloat16", choices=("bfloat16", "float32"))
    parser.add_argument("--weights", default="auto", choices=tuple(FORMS), help="as the engine's")
    parser.add_argument(
        "--exact", default="on", choices=("on", "off"), help="the same bits at every width"
    )
    parser.add_argument("--threads", type=int, default=0, help="as the engine's (default 0: auto)")
    options = parser.parse_args(argv)
    try:
        device, dtype = resolve_device(options.device), parse_dtype(options.dtype)
        threads = set_threads(options.threads)
        exact = options.exact == "on"
        form = resolve_form(options.weights, dtype=dtype, device=device)
        model = load_model(options.model, dtype=dtype, device=device, exact=exact, form=form)
        conditions = f"{options.dtype}, {options.device}, {threads} thread{'s'[: threads > 1]}"
        conditions += f", weights {form}, exact {options.exact}"
        sys.stderr.write(f"model-pass: {conditions}; filling the context\n")
        bench = Bench(model, conditions)
        bench.check()
    except ConfigError as exc:
        sys.stderr.write(f"model-pass: {exc}\n")
        return 1
    rows = list(judge(measure(bench, 7 if options.quick else 31), bench, has_tiles()))
    for row in rows:
        print(json.dumps(asdict(row)) if options.json else shown(row))
    return 0 if all(row.holds for row in rows) else 1


def measure(bench: Bench, repeats: int) -> dict[str, list[float]]:
    """Milliseconds of each case, taken in turns so that a slow moment hits all alike."""
    cases: dict[str, Callable[[], object]] = {"read the weights": bench.read}
    for context in CONTEXTS:
        for width in WIDTHS:
            cases[label(width, context)] = partial(bench.run, context, width)
    times: dict[str, list[float]] = {name: [] for name in cases}
    for _ in range(repeats):
        for name, work in cases.items():
            began_s = time.perf_counter()
            work()
            synchronise(bench.model.device)
            times[name].append((time.perf_counter() - began_s) * 1e3)
    return times


def judge(times: dict[str, list[float]], bench: Bench, tiles: bool) -> Iterator[Row]:
    median = {name: statistics.median(taken) for name, taken in times.items()}
    for name, taken in times.items():
        spread = statistics.quantiles(taken, n=10)
        conditions = f"{bench.conditions}; 10 % to 90 %: {spread[0]:.1f} to {spread[-1]:.1f} ms"
        yield Row(name, round(median[name], 2), None, True, "ms", conditions)
    short = label(1, CONTEXTS[0])
    ratio = median[short] / median["read the weights"]
    yield _at_most(f"{short} / read", ratio, READ_BAR, bench.conditions)
    for context in CONTEXTS:
        for width in WIDTHS[1:]:
            ratio = median[label(width, context)] / median[label(1, context)]
            # without matrix tiles the arithmetic, not the memory, decides from 16 columns on
            bar = WIDTH_BARS.get(width) if tiles and context == CONTEXTS[0] else None
            name = f"{label(width, context)} / width 1"
            yield _at_most(name, ratio, bar, bench.conditions)


def label(width: int, context: int) -> str:
    return f"pass of {width} at {context}"


def has_tiles() -> bool:
    """Whether the CPU multiplies bf16 in tiles."""
    try:
        return "amx_bf16" in Path("/proc/cpuinfo").read_text()
    except OSError:
        return False


def shown(row: Row) -> str:
    bar = "" if row.bar is None else f"bar {row.bar:g} {'holds' if row.holds else 'FALLS SHORT'}"
    return f"{row.name:32}{row.value:9.2f} {row.unit:3} {bar:18} {row.conditions}"


def _at_most(name: str, value: float, bar: float | None, conditions: str) -> Row:
    return Row(name, round(value, 3), bar, bar is None or value <= bar, "x", conditions)
