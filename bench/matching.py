"""`python -m bench matching`: the matching library against its bars, on one core.

Prints a table, or with --json one object a line. Exit status 1 if a bar falls short.
"""

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial

import numpy as np

from shared.matching.growing import GrowingIndex
from shared.matching.lookup import Source, find
from shared.matching.segment import SegmentIndex

VOCABULARY = 49_152  # the demo model's
LIMIT = 65  # the widest copy asks for two tokens more than its 63
MIB = 1024 * 1024


@dataclass(frozen=True)
class Row:
    name: str
    value: float
    bar: float
    holds: bool
    unit: str


@dataclass(frozen=True)
class Sizes:
    build: int
    indexed: int
    output: int
    repeats: int
    probes: int


FULL = Sizes(build=100_000, indexed=1_000_000, output=100_000, repeats=7, probes=2000)
QUICK = Sizes(build=100_000, indexed=1_000_000, output=20_000, repeats=3, probes=300)


def main(argv: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(prog="bench matching", description=__doc__)
    parser.add_argument("--json", action="store_true", help="one JSON object a line")
    parser.add_argument("--quick", action="store_true", help="fewer repeats and shorter output")
    options = parser.parse_args(argv)
    rows = []
    for row in measure(QUICK if options.quick else FULL):
        rows.append(row)
        if options.json:
            print(json.dumps(asdict(row)), flush=True)
    if not options.json:
        print(f"{'':52}{'measured':>10}{'bar':>10}")
        for row in rows:
            verdict = "" if row.holds else "  FALLS SHORT"
            print(f"{row.name:52}{row.value:>10.4g}{row.bar:>10.6g} {row.unit}{verdict}")
    if not all(row.holds for row in rows):
        raise SystemExit(1)


def measure(sizes: Sizes) -> Iterator[Row]:
    rng = np.random.default_rng(1)
    yield from _builds(rng, sizes)
    yield from _lookups(rng, sizes)
    yield from _outputs(rng, sizes)
    yield from _memory(rng)
    yield _pressure(rng)


def _builds(rng: np.random.Generator, sizes: Sizes) -> Iterator[Row]:
    for name, tokens in _texts(rng, sizes.build).items():
        elapsed_s = _median_s(partial(SegmentIndex.build, tokens), sizes.repeats)
        yield _at_most(f"build, 100k {name}", 1e6 * elapsed_s / len(tokens), 0.3, "us/token")


def _lookups(rng: np.random.Generator, sizes: Sizes) -> Iterator[Row]:
    for name, tokens in _texts(rng, sizes.indexed).items():
        index = SegmentIndex.build(tokens)
        hits = [tokens[p - 64 : p] for p in rng.integers(64, len(tokens) - 65, sizes.probes)]
        yield _lookup_row(f"lookup, hit, 1M {name}", index, hits)
        misses = list(rng.integers(0, VOCABULARY, (sizes.probes, 64)))
        yield _lookup_row(f"lookup, miss, 1M {name}", index, misses, min_match=12)
        near = [np.append(miss[:60], tokens[p : p + 4]) for p, miss in enumerate(misses)]
        yield _lookup_row(f"lookup, 4 tokens match, 1M {name}", index, near)


def _outputs(rng: np.random.Generator, sizes: Sizes) -> Iterator[Row]:
    for name, tokens in _texts(rng, sizes.output).items():
        index = GrowingIndex()
        started_s = time.perf_counter()
        for token in tokens.tolist():
            index.append((token,))
        elapsed_s = time.perf_counter() - started_s
        yield _at_most(
            f"output, one at a time, {name}", 1e6 * elapsed_s / len(tokens), 5, "us/token"
        )
        hits = [tokens[p - 64 : p] for p in rng.integers(64, len(tokens) - 65, sizes.probes)]
        yield _lookup_row(f"lookup in output, hit, {name}", index, hits)


def _memory(rng: np.random.Generator) -> Iterator[Row]:
    tokens = rng.integers(0, VOCABULARY, MIB).astype(np.int32)
    used = SegmentIndex.build(tokens).nbytes / MIB
    yield _at_most("memory, 1,048,576 tokens, immutable", used, 36, "MiB")
    # Amortised growth makes the worst moment of a text the one right after its buffer doubled.
    output = GrowingIndex()
    worst = 0.0
    for start in range(0, MIB // 8, 64):
        output.append(tokens[start : start + 64])
        if len(output) > MIB // 16:
            worst = max(worst, output.nbytes / len(output))
    yield _at_most("memory, 1,048,576 tokens, output at its worst", worst, 36, "MiB")


def _pressure(rng: np.random.Generator) -> Row:
    """An old source of 2,048 tokens must still be found after 480,000 random ones."""
    old = rng.integers(0, VOCABULARY, 2048)
    boundary = np.array([-1])
    tokens = np.concatenate([old, boundary, rng.integers(0, VOCABULARY, 480_000)])
    index = SegmentIndex.build(tokens.astype(np.int32))
    probes = range(64, 2048 - 14)
    matches = [find(old[p - 64 : p], [index], 14, min_match=12) for p in probes]
    pairs = zip(matches, probes, strict=True)
    found = sum(match is not None and match.position == p for match, p in pairs)
    return Row(f"old span under pressure, of {len(probes)}", found, 1750, found >= 1750, "found")


def _texts(rng: np.random.Generator, count: int) -> dict[str, np.ndarray]:
    """Random ids, and text like code: phrases that return as often as words do."""
    phrases = [rng.integers(0, VOCABULARY, length) for length in rng.integers(2, 30, 4000)]
    picked = np.minimum(rng.zipf(1.2, count // 4), len(phrases)) - 1
    code = np.concatenate([phrases[i] for i in picked])[:count]
    return {
        "random tokens": rng.integers(0, VOCABULARY, count).astype(np.int32),
        "code-like tokens": code.astype(np.int32),
    }


def _lookup_row(
    name: str, source: Source, queries: Sequence[np.ndarray], *, min_match: int = 1
) -> Row:
    sources = [source]
    elapsed_s = []
    for query in queries:
        started_s = time.perf_counter()
        find(query, sources, LIMIT, min_match=min_match)
        elapsed_s.append(time.perf_counter() - started_s)
    return _at_most(name, 1e6 * statistics.median(elapsed_s), 30, "us median")


def _median_s(work: Callable[[], object], repeats: int) -> float:
    elapsed_s = []
    for _ in range(repeats):
        started_s = time.perf_counter()
        work()
        elapsed_s.append(time.perf_counter() - started_s)
    return statistics.median(elapsed_s)


def _at_most(name: str, value: float, bar: float, unit: str) -> Row:
    return Row(name, round(value, 4), bar, value <= bar, unit)


if __name__ == "__main__":
    main(sys.argv[1:])
