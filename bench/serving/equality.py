"""Whether drafting and caching changed a text. Nothing about speed is said before this is known."""

from collections.abc import Sequence
from typing import NamedTuple

from bench.serving.result import Cell, CellKey

REFERENCE = ("cold", "off")
SHOWN_CHARACTERS = 30


class Equality(NamedTuple):
    compared: int
    differences: list[str]  # one sentence each

    @property
    def holds(self) -> bool:
        return not self.differences


def compare(cells: Sequence[Cell], names: Sequence[str]) -> Equality:
    """The texts of the configurations `names` against those with copies off and nothing cached.

    A request that only one of the two answered counts as a difference.
    """
    references = {
        (cell.key.workload, cell.key.context): cell
        for cell in cells
        if (cell.key.cache, cell.key.configuration) == REFERENCE
    }
    compared, differences = 0, []
    for cell in cells:
        reference = references[cell.key.workload, cell.key.context]
        if cell is reference or cell.key.configuration not in names:
            continue
        texts = {run.repeat: run.answer.text for run in cell.runs}
        for run in reference.runs:
            compared += 1
            found = texts.get(run.repeat)
            if found != run.answer.text:
                differences.append(_said(cell.key, run.repeat, run.answer.text, found))
    return Equality(compared, differences)


def _said(key: CellKey, repeat: int, wanted: str, found: str | None) -> str:
    where = f"{key.workload}, {key.context}, {key.cache}, {key.configuration}, repeat {repeat + 1}"
    if found is None:
        return f"{where}: no answer"
    pairs = enumerate(zip(wanted, found, strict=False))
    shorter = min(len(wanted), len(found))
    at = next((i for i, (one, other) in pairs if one != other), shorter)
    ours, theirs = (repr(text[at : at + SHOWN_CHARACTERS]) for text in (found, wanted))
    return f"{where}: at character {at} it says {ours}, with copies off {theirs}"
