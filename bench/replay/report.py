"""What a replay run says: a table for people, rows for programs, a plot."""

import csv
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from rich.console import Console
from rich.table import Table

from bench.replay.contenders import COLUMN_COSTS, NEURAL_TOKENS, WIDTHS, Contender
from bench.replay.round import Outcome
from bench.replay.tasks import KINDS

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ALL = "all"  # every pooled kind together
ORACLE_STYLES = dict(zip(WIDTHS, (("0.6", ":"), ("0.2", "-.")), strict=True))  # grey, line


@dataclass(frozen=True)
class Line:
    """One drafter on one kind of task."""

    drafter: str
    role: str  # peer, ninfer or oracle
    tuned_for: float | None  # the column cost that an adaptive drafter was told
    neural: int  # tokens of the simulated neural drafter, 0 without
    width: int
    kind: str
    output_tokens: int
    passes: int
    drafted_tokens: int
    accepted_tokens: int
    tokens_per_pass: float
    waste_per_token: float
    speed_002: float  # modelled, against no drafting, at a column cost of 0.002
    speed_007: float
    speed_02: float
    speed_05: float
    proposal_us_median: float
    proposal_us_p99: float
    duplicate_share: float  # of 12-grams within one output, mean over the tasks

    @property
    def contender(self) -> tuple[str, float | None, int]:
        """What all lines of one contender share."""
        return self.drafter, self.tuned_for, self.neural

    @property
    def label(self) -> str:
        tuned = f" at {self.tuned_for:g}" if self.tuned_for is not None else ""
        return self.drafter + tuned

    def runs_at(self, column_cost: float) -> bool:
        """An adaptive drafter is told the machine's cost; the others do not ask."""
        return self.tuned_for in (None, column_cost)

    def speed(self, column_cost: float) -> float:
        return _speeds(self)[COLUMN_COSTS.index(column_cost)]


def line(entry: Contender, kind: str, outcome: Outcome, duplicates: float) -> Line:
    micros = 1e6 * np.asarray(outcome.proposal_s or [0.0])
    cheap, low, middle, steep = (round(outcome.speed(cost), 3) for cost in COLUMN_COSTS)
    return Line(
        drafter=entry.drafter.name,
        role=entry.role,
        tuned_for=entry.tuned_for,
        neural=NEURAL_TOKENS if entry.neural else 0,
        width=entry.width,
        kind=kind,
        output_tokens=outcome.tokens,
        passes=outcome.passes,
        drafted_tokens=outcome.drafted,
        accepted_tokens=outcome.accepted,
        tokens_per_pass=round(outcome.tokens_per_pass, 3),
        waste_per_token=round(outcome.waste, 3),
        speed_002=cheap,
        speed_007=low,
        speed_02=middle,
        speed_05=steep,
        proposal_us_median=round(float(np.median(micros)), 1),
        proposal_us_p99=round(float(np.percentile(micros, 99)), 1),
        duplicate_share=round(duplicates, 3),
    )


def show(lines: Sequence[Line]) -> None:
    """Tokens per pass by kind; then waste, modelled speed and host time over the pooled kinds."""
    for neural in sorted({entry.neural for entry in lines}):
        title = "tokens per pass" + (f", neural drafter of {neural}" if neural else "")
        table = Table(title=title, title_justify="left")
        table.add_column("drafter", no_wrap=True)
        for kind in (*KINDS, ALL, "waste", *(f"x at {c:g}" for c in COLUMN_COSTS), "us", "p99"):
            table.add_column(kind, justify="right", no_wrap=True)
        for pooled in [e for e in lines if e.kind == ALL and e.neural == neural]:
            by_kind = {e.kind: e for e in lines if e.contender == pooled.contender}
            table.add_row(
                pooled.label,
                *(f"{by_kind[k].tokens_per_pass:.2f}" if k in by_kind else "" for k in KINDS),
                f"{pooled.tokens_per_pass:.2f}",
                f"{pooled.waste_per_token:.2f}",
                *(f"{speed:.2f}" for speed in _speeds(pooled)),
                f"{pooled.proposal_us_median:.0f}",
                f"{pooled.proposal_us_p99:.0f}",
            )
        shares = {e.kind: e.duplicate_share for e in lines}
        table.add_section()
        table.add_row(
            "duplicate 12-grams",
            *(f"{100 * shares[k]:.0f} %" for k in (*KINDS, ALL) if k in shares),
        )
        Console(width=None if Console().is_terminal else 200).print(table)


def write_csv(lines: Sequence[Line], path: Path) -> None:
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, [field.name for field in fields(Line)])
        writer.writeheader()
        writer.writerows(asdict(entry) for entry in lines)


def plot(lines: Sequence[Line], path: Path) -> None:
    """Writes `figure_of` the lines as the path's suffix says."""
    figure_of(lines).savefig(path)


def figure_of(lines: Sequence[Line]) -> "Figure":
    """Modelled speed against the cost of a column, one curve a drafter, pooled kinds."""
    from matplotlib.figure import Figure  # noqa: PLC0415 half a second, only for a plot

    amounts = sorted({entry.neural for entry in lines})
    figure = Figure(figsize=(6.5 * len(amounts), 7.5), layout="constrained")
    for i_axis, neural in enumerate(amounts):
        axes = figure.add_subplot(1, len(amounts), i_axis + 1)
        pooled = [e for e in lines if e.kind == ALL and e.neural == neural]
        for name in dict.fromkeys(e.drafter for e in pooled):
            entries = [e for e in pooled if e.drafter == name]
            role, width = entries[0].role, entries[0].width
            grey, dashes = ORACLE_STYLES[width] if role == "oracle" else (None, "--")
            axes.plot(
                COLUMN_COSTS,
                [max(e.speed(cost) for e in entries if e.runs_at(cost)) for cost in COLUMN_COSTS],
                marker="o",
                label=f"{name} (bound, not a drafter)" if role == "oracle" else name,
                linewidth=2.4 if role == "ninfer" else 1.1,
                linestyle="-" if role == "ninfer" else dashes,
                color=grey,
            )
        axes.set_xscale("log")
        axes.set_xticks(COLUMN_COSTS, [f"{cost:g}" for cost in COLUMN_COSTS])
        axes.minorticks_off()
        axes.set_ylim(bottom=0)
        axes.set_xlabel("cost of one drafted column, in passes of one token")
        axes.set_ylabel("modelled speed against no drafting")
        axes.set_title(f"neural drafter of {neural} tokens" if neural else "no neural drafter")
        axes.grid(alpha=0.3)
        # below the axes, where no curve runs
        axes.legend(fontsize="x-small", loc="upper center", bbox_to_anchor=(0.5, -0.12), ncols=2)
    return figure


def _speeds(entry: Line) -> tuple[float, float, float, float]:
    return entry.speed_002, entry.speed_007, entry.speed_02, entry.speed_05
