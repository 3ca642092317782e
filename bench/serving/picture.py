"""The decode speeds as bars, one group a workload, with the least and the most of the repeats."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from bench.serving.result import Cell, decode_speed

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def draw(cells: Sequence[Cell], path: Path) -> None:
    """Writes `figure_of` the cells as the path's suffix says."""
    figure_of(cells).savefig(path)


def figure_of(cells: Sequence[Cell]) -> "Figure":
    """One panel for each context. Cold prompts only: decoding does not depend on the cache."""
    from matplotlib.figure import Figure  # noqa: PLC0415 half a second, only for a picture

    drawn = [c for c in cells if c.key.cache == "cold" and c.spread(decode_speed) and not c.problem]
    contexts = list(dict.fromkeys(cell.key.context for cell in drawn)) or ["none"]
    names = list(dict.fromkeys(cell.key.configuration for cell in drawn))
    figure = Figure(figsize=(6.5 * len(contexts), 5), layout="constrained")
    for i_axis, context in enumerate(contexts):
        axes = figure.add_subplot(1, len(contexts), i_axis + 1)
        here = [cell for cell in drawn if cell.key.context == context]
        workloads = list(dict.fromkeys(cell.key.workload for cell in here))
        for i_name, name in enumerate(names):
            bars = [cell for cell in here if cell.key.configuration == name]
            spreads = [s for cell in bars if (s := cell.spread(decode_speed))]
            height = 0.8 / len(names)
            axes.barh(
                [workloads.index(cell.key.workload) + i_name * height for cell in bars],
                [s.median for s in spreads],
                height,
                label=name,
                xerr=[
                    [s.median - s.low for s in spreads],
                    [s.high - s.median for s in spreads],
                ],
            )
        axes.set_yticks([i + 0.4 - 0.4 / max(1, len(names)) for i in range(len(workloads))])
        axes.set_yticklabels(workloads)
        axes.invert_yaxis()
        axes.set_xlabel("decoded tokens a second, without the first")
        axes.set_title(f"{context} context")
        axes.legend(title="copies")
    return figure
