"""`ninfer-bench`: what copies gain and cost on a real server, with their texts compared first."""

import importlib.util
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import NamedTuple

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from bench.server import BenchServer
from bench.serving.client import Card, ChatClient, Refused
from bench.serving.config import BenchConfig, Plan, plan
from bench.serving.equality import Equality, compare
from bench.serving.measure import CACHES, Target, conversations, measure, warm_up
from bench.serving.picture import draw
from bench.serving.report import as_json, show, write_csv, write_json
from bench.serving.result import Cell
from shared import lifecycle
from shared.errors import ConfigError

OTHER = "compared"


class Outcome(NamedTuple):
    cells: list[Cell]
    cards: dict[str, Card]
    equality: Equality


def main(argv: Sequence[str]) -> int:
    """The exit status: 1 where texts differ although the model is exact, or nobody answered."""
    wanted = plan(argv)
    _check_files(wanted.config)
    try:
        with targets(wanted) as found:
            outcome = run(wanted, found)
    except Refused as exc:
        _say(f"error: {exc}")
        return 1
    return report(wanted, outcome)


@contextmanager
def targets(wanted: Plan) -> Iterator[list[Target]]:
    """The servers to ask, "off" first; those started here are stopped at the end."""
    config = wanted.config
    with ExitStack() as stack:
        found: list[Target] = []
        clients: dict[tuple[str, ...], ChatClient] = {}
        for one in wanted.configurations:
            if one.flags not in clients:
                url = config.url
                if url is None:
                    _say(f"starting a server: {' '.join(one.flags) or 'no flags'}")
                    server = BenchServer.start(wanted.model, *one.flags, start_s=config.start_s)
                    stack.callback(server.stop)
                    url = f"http://127.0.0.1:{server.port}"
                clients[one.flags] = ChatClient(url, key=config.api_key)
            client = clients[one.flags]
            if client.card.kind != "ninfer":
                raise ConfigError(
                    f"--url {config.url} is no ninfer (it says {client.card.kind}); "
                    "ask it with --compare"
                )
            found.append(Target(one.name, client, one.ninfer))
        if config.compare is not None:
            other = ChatClient(config.compare, model=config.compare_model, key=config.compare_key)
            found.append(Target(OTHER, other, ours=False))
        yield found


def run(wanted: Plan, found: Sequence[Target]) -> Outcome:
    """Raises Refused: a server does not answer the first request."""
    asked, left_out = conversations(wanted, found[0].client)
    for said in left_out:
        _say(f"left out: near {said}")
    if not asked:
        raise Refused("nothing to ask fits into the context")
    warm_up(found, asked[0].turns[0])
    turns = sum(len(conversation.turns) for conversation in asked)
    total = turns * len(found) * len(CACHES) * wanted.config.repeats
    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description:40}"),
        BarColumn(),
        TextColumn("{task.completed}/{task.total}"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, disable=not console.is_terminal) as bars:
        task = bars.add_task("", total=total)

        def advance(description: str) -> None:
            bars.update(task, description=description, advance=1)

        cells = measure(wanted, found, asked, advance)
    names = [target.name for target in found if target.ours]
    cards = {target.name: target.client.card for target in found}
    return Outcome(cells, cards, compare(cells, names))


def report(wanted: Plan, outcome: Outcome) -> int:
    """Prints and writes what may be said; the exit status."""
    cells, cards, equality = outcome
    config = wanted.config
    exact = all(card.exact for name, card in cards.items() if name != OTHER)
    trusted = equality.holds or not exact
    if config.json:
        write_json(as_json(cells if trusted else [], wanted, cards, equality), config.json)
    for difference in equality.differences:
        _say(f"different text: {difference}")
    if not trusted:
        _say("error: the model is exact, so these texts must be equal; no speed is shown")
        return 1
    verdict = f"{equality.compared - len(equality.differences)} of {equality.compared}"
    why = "" if exact else " (the server does not claim to be exact)"
    _say(f"texts equal to those without copies: {verdict}{why}")
    if config.compare_texts:
        theirs = compare(cells, [OTHER])
        same = theirs.compared - len(theirs.differences)
        _say(f"texts of {config.compare} equal to ours: {same} of {theirs.compared}")
    if str(config.json) != "-":
        show(cells, wanted, cards["off"])
    if config.csv:
        write_csv(cells, config.csv)
    if config.plot:
        draw(cells, config.plot)
    return 0 if all(cell.runs for cell in cells if cell.key.configuration != OTHER) else 1


def _check_files(config: BenchConfig) -> None:
    """Raises ConfigError: what was measured could not be written."""
    for flag, path in (("--csv", config.csv), ("--json", config.json), ("--plot", config.plot)):
        if path is not None and str(path) != "-" and not path.absolute().parent.is_dir():
            raise ConfigError(f"{flag} {path}: its folder does not exist")
    if config.plot is not None and importlib.util.find_spec("matplotlib") is None:
        raise ConfigError("--plot needs matplotlib: pip install 'ninfer[bench]'")


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def entry() -> None:
    """The command `ninfer-bench`."""

    # ending by a signal stops the servers too
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))

    def bench(argv: list[str]) -> None:
        if status := main(argv):
            raise SystemExit(status)

    lifecycle.run(bench)
