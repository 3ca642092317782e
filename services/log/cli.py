"""`ninfer-log`: read a request log. Watch it, sum it up, and ask why one request was slow."""

import argparse
import json
import sys
import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from services.gateway.log_lines import AnyLine, RequestDone, RequestError, ServerStart, schema
from services.log.lost import with_lost
from services.log.reading import LogReader
from services.log.tail import shown
from services.log.totals import GROUPS, by_group, by_source
from services.log.wanted import Wanted, since
from services.log.why import reasons, stages
from shared.errors import ConfigError
from shared.options import with_completion

BAR_CHARACTERS = 30
PIPED_CHARACTERS = 140
Lines = Iterable[tuple[AnyLine, bytes]]


def main(argv: Sequence[str] | None = None) -> int:
    arguments = _parser().parse_args(argv)
    try:
        if arguments.command == "schema":
            sys.stdout.write(json.dumps(schema(), indent=2) + "\n")
            return 0
        reader = LogReader(arguments.file)
        wanted = _wanted(arguments)
        match arguments.command:
            case "tail":
                _tail(reader, wanted, arguments)
            case "summary":
                _summary(_chosen(reader, wanted), arguments.by, as_json=arguments.json)
            case "sources":
                _sources(_chosen(reader, wanted), as_json=arguments.json)
            case "why":
                _why(_one(reader, wanted, slowest=arguments.slowest))
    except ConfigError as exc:
        sys.stderr.write(f"ninfer-log: {exc}\n")
        return 1
    except (KeyboardInterrupt, BrokenPipeError):
        return 130
    if reader.skipped:
        sys.stderr.write(f"ninfer-log: {reader.skipped} lines are none of a request log; skipped\n")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="ninfer-log", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    one = commands.add_parser("tail", help="one line a request, in colour")
    _add_filters(one)
    one.add_argument("-f", "--follow", action="store_true", help="wait for more")
    one.add_argument("-n", "--lines", type=int, default=20, help="how many (default 20)")
    one.add_argument("--json", action="store_true", help="the log's own lines")
    one = commands.add_parser("summary", help="totals by client, protocol, model or session")
    _add_filters(one)
    one.add_argument("--by", choices=GROUPS, default="client", help="default: client")
    one.add_argument("--json", action="store_true", help="one object a line")
    one = commands.add_parser("sources", help="what was copied, by kind of source")
    _add_filters(one)
    one.add_argument("--json", action="store_true", help="one object a line")
    one = commands.add_parser("why", help="why one request was slow: the last, or the slowest")
    _add_filters(one)
    one.add_argument("--slowest", action="store_true", help="not the last, but the slowest")
    commands.add_parser("schema", help="the JSON Schema of one line")
    return with_completion(parser)


def _add_filters(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", type=Path, metavar="FILE", help="what --request-log-jsonl named")
    group = parser.add_argument_group("which requests")
    group.add_argument("--request", metavar="ID", help="its id, or the end of it")
    group.add_argument("--client", metavar="TEXT", help="part of the User-Agent")
    group.add_argument("--protocol", metavar="TEXT", help="part of the protocol's name")
    group.add_argument("--session", metavar="HASH", help="beginning of the draft session's hash")
    group.add_argument("--errors", action="store_true", help="only refused and failed ones")
    group.add_argument("--slower", metavar="S", type=float, help="took at least S seconds")
    group.add_argument("--since", metavar="WHEN", help="90s, 10m, 2h or 1d ago, or a date")


def _wanted(arguments: argparse.Namespace) -> Wanted:
    return Wanted(
        request=arguments.request,
        client=arguments.client,
        protocol=arguments.protocol,
        session=arguments.session,
        errors=arguments.errors,
        slower_s=arguments.slower,
        since_ms=since(arguments.since, time.time()) if arguments.since else None,
    )


def _chosen(reader: LogReader, wanted: Wanted) -> Iterator[AnyLine]:
    return (line for line, _ in with_lost(reader.lines()) if wanted(line))


def _tail(reader: LogReader, wanted: Wanted, arguments: argparse.Namespace) -> None:
    def of(lines: Lines) -> Iterator[tuple[AnyLine, bytes]]:
        for line, raw in lines:
            if wanted(line) and (raw if arguments.json else shown(line) is not None):
                yield line, raw

    old = deque(of(with_lost(reader.lines())), maxlen=max(arguments.lines, 0))
    for line, raw in old:
        _print(line, raw, as_json=arguments.json)
    if arguments.follow:
        for line, raw in of(reader.follow()):
            _print(line, raw, as_json=arguments.json)


def _print(line: AnyLine, raw: bytes, *, as_json: bool) -> None:
    if as_json:
        sys.stdout.write(raw.decode())
        sys.stdout.flush()
    elif (text := shown(line)) is not None:
        _console().print(text, soft_wrap=True)


def _summary(lines: Iterable[AnyLine], by: str, *, as_json: bool) -> None:
    totals = by_group(lines, by)
    if as_json:
        for name, total in totals.items():
            fields = {field: value for field, value in vars(total).items() if field != "ttft_s"}
            fields |= {
                "tokens_per_pass": total.tokens_per_pass,
                "median_ttft_s": total.median_ttft_s,
            }
            sys.stdout.write(json.dumps({by: name, **fields}) + "\n")
        return
    table = Table(box=None, header_style="bold")
    table.add_column(by, overflow="fold")
    for heading in (
        *("done", "failed", "cancelled", "prompt", "reused", "output", "tokens/pass"),
        *("kept/drafted", "median ttft"),
    ):
        table.add_column(heading, justify="right")
    for name, total in totals.items():
        reused = total.reused_tokens / total.prompt_tokens if total.prompt_tokens else 0.0
        each, ttft_s = total.tokens_per_pass, total.median_ttft_s
        table.add_row(
            name,
            f"{total.done}",
            f"{total.failed}",
            f"{total.cancelled}",
            f"{total.prompt_tokens}",
            f"{reused:.0%}",
            f"{total.output_tokens}",
            "" if each is None else f"{each:.2f}",
            f"{total.accepted_tokens}/{total.drafted_tokens}",
            "" if ttft_s is None else f"{ttft_s:.3f} s",
        )
    _console().print(table)


def _sources(lines: Iterable[AnyLine], *, as_json: bool) -> None:
    totals = by_source(lines)
    if as_json:
        for kind, total in totals.items():
            sys.stdout.write(json.dumps({"kind": kind, **vars(total)}) + "\n")
        return
    table = Table(box=None, header_style="bold")
    table.add_column("source")
    for heading in ("requests", "rounds", "drafted", "accepted", "share", "tokens/round"):
        table.add_column(heading, justify="right")
    for kind, total in totals.items():
        share = total.accepted_tokens / total.drafted_tokens if total.drafted_tokens else 0.0
        each = total.accepted_tokens / total.rounds if total.rounds else 0.0
        numbers = (total.requests, total.rounds, total.drafted_tokens, total.accepted_tokens)
        table.add_row(kind, *map(str, numbers), f"{share:.0%}", f"{each:.1f}")
    _console().print(table)


def _one(reader: LogReader, wanted: Wanted, *, slowest: bool) -> RequestDone:
    """Raises ConfigError: no request that ended normally fits."""
    found: RequestDone | None = None
    failed: RequestError | None = None
    ids: set[str] = set()
    for line in _chosen(reader, wanted):
        if wanted.request is not None and not isinstance(line, ServerStart):
            ids.add(line.request.request_id)
        if isinstance(line, RequestError):
            failed = line
        elif isinstance(line, RequestDone) and not (
            slowest and found and line.timings_seconds.total < found.timings_seconds.total
        ):
            found = line
    if len(ids) > 1:
        raise ConfigError(f"{len(ids)} requests end in {wanted.request}; give more of the id")
    if found is None and failed is not None:
        error = failed.error
        raise ConfigError(f"{failed.request.request_id} failed in {failed.phase}: {error.reason}")
    if found is None:
        raise ConfigError("no request in the log fits; ninfer-log tail FILE lists them")
    return found


def _console() -> Console:
    """As wide as the terminal; wide enough for every table where there is none."""
    return Console(highlight=False, width=None if sys.stdout.isatty() else PIPED_CHARACTERS)


def _why(line: RequestDone) -> None:
    console = _console()
    request, total_s = line.request, line.timings_seconds.total or 1e-9
    console.print(f"[bold]{request.request_id}[/] {request.protocol}, {total_s:.3f} s")
    table = Table(box=None, show_header=False)
    for column in ("name", "seconds", "share", "bar", "about"):
        table.add_column(column, justify="right" if column in ("seconds", "share") else "left")
    for stage in stages(line):
        share = stage.seconds / total_s
        bar = "█" * round(BAR_CHARACTERS * min(share, 1.0))
        table.add_row(stage.name, f"{stage.seconds:.3f} s", f"{share:.0%}", bar, stage.about)
    console.print(table)
    for reason in reasons(line):
        console.print(f"- {reason}", soft_wrap=True, markup=False)
    if line.speculative.sources:
        _sources([line], as_json=False)
