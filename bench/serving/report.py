"""The measured cells as a table, as CSV and as JSON."""

import csv
import json
import os
import platform
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from bench.serving.client import Card
from bench.serving.config import Plan
from bench.serving.equality import Equality
from bench.serving.result import Cell, Spread, decode_speed, first_token, row, run_values

SCHEMA_VERSION = 1
PIPED_CHARACTERS = 160
COLUMNS = (
    "workload",
    "cache",
    "copies",
    "prefill new + reused",
    "out",
    "first token s",
    "decode tok/s",
    "x off",
    "tok/pass",
    "copied/drafted",
    "dup 12",
)


def show(cells: Sequence[Cell], plan: Plan, card: Card) -> None:
    """One table for each context."""
    console = Console(width=None if sys.stdout.isatty() else PIPED_CHARACTERS)
    for context in plan.contexts:
        of_context = [cell for cell in cells if cell.key.context == context]
        if not of_context:
            continue
        title = f"{card.model}, {context} context, median (least..most) of {plan.config.repeats}"
        table = Table(title=title, title_justify="left")
        for i_column, name in enumerate(COLUMNS):
            table.add_column(name, justify="right" if i_column > 2 else "left", no_wrap=True)
        above = None
        for cell in of_context:
            if above not in (None, cell.key.workload):
                table.add_section()
            above = cell.key.workload
            table.add_row(*_shown(cell, speed_vs_off(cell, cells)))
        console.print(table)
    notes = {cell.refused or cell.problem: cell.key for cell in cells}
    for note, key in notes.items():
        if note:
            console.print(f"{' '.join(key)}: {note}", markup=False, highlight=False)
    if not plan.config.free:
        console.print(
            "Answers are prefilled (raw-copy) or held to their text (numbered-copy, edits, "
            "session-1, session-2), so that small models copy too; --free asks in words alone."
        )


def speed_vs_off(cell: Cell, cells: Sequence[Cell]) -> float | None:
    """Ratio of the medians; None where one of them means nothing."""
    off = next(
        (c for c in cells if c.key == cell.key._replace(configuration="off")),
        None,
    )
    if off is None or cell.problem or off.problem:
        return None
    ours, theirs = cell.spread(decode_speed), off.spread(decode_speed)
    return ours.median / theirs.median if ours and theirs else None


def _shown(cell: Cell, ratio: float | None) -> list[str]:
    key = cell.key
    if cell.refused and not cell.runs:
        return [key.workload, key.cache, key.configuration, "refused", *[""] * 7]
    values = row(cell, speed_vs_off=ratio)
    decode = None if cell.problem else cell.spread(decode_speed)
    counts = (values["accepted_tokens"], values["drafted_tokens"])
    return [
        key.workload,
        key.cache,
        key.configuration,
        f"{_whole(values['computed_prefill_tokens'])} + {_whole(values['reused_prefill_tokens'])}",
        _whole(values["output_tokens"]),
        _spread(cell.spread(first_token), 2),
        "no copy" if cell.problem else _spread(decode, 1),
        "" if ratio is None or key.configuration == "off" else f"{ratio:.2f}",
        "" if values["tokens_per_pass"] is None else f"{values['tokens_per_pass']:.2f}",
        "" if None in counts else "/".join(str(n) for n in counts),
        f"{100 * values['duplicate_12_gram_share']:.0f} %",
    ]


def write_csv(cells: Sequence[Cell], path: Path) -> None:
    rows = [row(cell, speed_vs_off=speed_vs_off(cell, cells)) for cell in cells]
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


def as_json(
    cells: Sequence[Cell], plan: Plan, cards: dict[str, Card], equality: Equality
) -> dict[str, Any]:
    """Everything that was measured, or the differences alone where `cells` are none."""
    return {
        "artifact_type": "ninfer_bench",
        "schema_version": SCHEMA_VERSION,
        "machine": {
            "platform": platform.platform(),
            "processor": platform.processor(),
            "cpus": os.cpu_count(),
            "load_average": os.getloadavg(),
            "python": platform.python_version(),
        },
        "servers": {name: asdict(card) for name, card in cards.items()},
        "configurations": [asdict(c) for c in plan.configurations],
        "output_tokens": plan.config.output_tokens,
        "free": plan.config.free,
        "texts": {"compared": equality.compared, "differences": equality.differences},
        "rows": [
            row(cell, speed_vs_off=speed_vs_off(cell, cells))
            | {"runs": [run_values(run) for run in cell.runs]}
            for cell in cells
        ],
    }


def write_json(report: dict[str, Any], path: Path) -> None:
    text = json.dumps(report, indent=1) + "\n"
    if str(path) == "-":
        sys.stdout.write(text)
    else:
        path.write_text(text, encoding="utf-8")


def _whole(value: float | None) -> str:
    return "?" if value is None else f"{value:.0f}"


def _spread(found: Spread | None, digits: int) -> str:
    if found is None:
        return ""
    if found.low == found.high:
        return f"{found.median:.{digits}f}"
    return f"{found.median:.{digits}f} ({found.low:.{digits}f}..{found.high:.{digits}f})"
