"""`ninfer-model`: fetch the demo model, convert a GGUF file, describe a model folder."""

import argparse
import json
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from services.engine.checkpoint.convert import convert
from services.engine.checkpoint.describe import Description, describe
from services.engine.checkpoint.fetch import SOURCES, default_folder, fetch
from services.engine.checkpoint.fetch import Progress as Report
from shared import options
from shared.errors import CheckpointError


def main(argv: list[str] | None = None) -> int:
    arguments = _parser().parse_args(argv)
    # ending by a signal runs the clean-up too, so that no half-written folder stays
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        match arguments.command:
            case "fetch":
                _fetch(arguments.name, arguments.dir or default_folder(arguments.name))
            case "convert":
                _convert(arguments.file, arguments.dir)
            case "info":
                _info(describe(arguments.dir), as_json=arguments.json)
    except CheckpointError as exc:
        sys.stderr.write(f"ninfer-model: {' '.join(str(exc).split())}\n")
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="ninfer-model", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    one = commands.add_parser("fetch", help="download, verify and convert the demo model")
    one.add_argument("name", help=" or ".join(SOURCES))
    one.add_argument("--dir", type=Path, help="where to put it (default: the user's cache)")
    one = commands.add_parser("convert", help="convert a GGUF file to a model folder")
    one.add_argument("file", type=Path, metavar="FILE.gguf")
    one.add_argument("dir", type=Path, metavar="DIR")
    one = commands.add_parser("info", help="check and describe a model folder")
    one.add_argument("dir", type=Path, metavar="DIR")
    one.add_argument("--json", action="store_true", help="one JSON object")
    return options.with_completion(parser)


def _fetch(name: str, folder: Path) -> None:
    with _bars() as report:
        fetch(name, folder, report)
    sys.stdout.write(f"{folder.absolute()}\n")


def _convert(file: Path, folder: Path) -> None:
    with _bars() as report:
        convert(file, folder, lambda done, total: report("convert", done, total))
    sys.stdout.write(f"{folder.absolute()}\n")


@contextmanager
def _bars() -> Iterator[Report]:
    """One bar a step on a terminal's stderr, gone at the end; nothing where there is none."""
    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description:>9}"),
        BarColumn(),
        TaskProgressColumn(),
        TimeElapsedColumn(),
    )
    tasks = {}
    with Progress(
        *columns, console=console, transient=True, disable=not console.is_terminal
    ) as bars:

        def report(step: str, done: int, total: int) -> None:
            if step not in tasks:
                tasks[step] = bars.add_task(step, total=total)
            bars.update(tasks[step], completed=done)

        yield report


def _info(found: Description, *, as_json: bool) -> None:
    values = found.as_json()
    if as_json:
        sys.stdout.write(json.dumps(values, ensure_ascii=False) + "\n")
        return
    special = values.pop("special_tokens")
    values["special_tokens"] = ", ".join(f"{text} {index}" for text, index in special.items())
    table = Table(show_header=False, box=None)
    for key, value in values.items():
        shown = f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else value
        if isinstance(value, list):
            shown = ", ".join(map(str, value)) or "none"
        table.add_row(key.replace("_", " "), str(shown))
    Console(soft_wrap=True, markup=False, highlight=False).print(table)


if __name__ == "__main__":
    sys.exit(main())
