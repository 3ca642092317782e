"""The text a drafter learns from, with what the target had in mind at every token."""

from pathlib import Path

import numpy as np
import torch

from services.engine.training.recipe import Recipe

FORCED, USER, ANSWER = 0, 1, 2  # who chose a token: the template, the model as user, as itself
LOOP_TOKENS = 12  # a run of so many that stood in the row before is a loop's


class Corpus:
    """Memory-mapped rows; those below `written` are whole."""

    def __init__(self, work: Path, recipe: Recipe, hidden_size: int) -> None:
        self._done = work / "written"
        size = (recipe.rows, recipe.row_tokens)
        self.ids = _mapped(work / "ids.npy", np.int32, size)
        self.roles = _mapped(work / "roles.npy", np.uint8, size)
        # bf16 as its bits: behind the final norm, of the token at that place
        self._hidden = _mapped(work / "hidden.npy", np.uint16, (*size, hidden_size))

    @property
    def written(self) -> int:
        return int(self._done.read_text()) if self._done.exists() else 0

    def hidden(self, rows: np.ndarray) -> torch.Tensor:
        """bf16 [rows, row_tokens, hidden]"""
        return torch.from_numpy(self._hidden[rows]).view(torch.bfloat16)

    def put(self, first: int, ids: np.ndarray, roles: np.ndarray, hidden: torch.Tensor) -> None:
        """Rows from `first` on: int32 and uint8 [n, row_tokens], bf16 [n, row_tokens, hidden]."""
        end = first + len(ids)
        self.ids[first:end] = ids
        self.roles[first:end] = roles
        self._hidden[first:end] = hidden.view(torch.uint16).numpy()
        for part in (self.ids, self.roles, self._hidden):
            part.flush()
        self._done.write_text(str(end))

    def learnable(self, rows: np.ndarray) -> np.ndarray:
        """bool [rows, row_tokens]: the model's own answers, without its loops."""
        return np.stack(
            [(self.roles[row] == ANSWER) & ~looping(self.ids[row]) for row in rows.tolist()]
        )

    def shortlist(self, rows: int, size: int, always: tuple[int, ...]) -> np.ndarray:
        """int64, ascending: `always`, then the most frequent tokens of the first rows' answers."""
        said = self.ids[:rows][self.roles[:rows] == ANSWER]
        ids, counts = np.unique(said, return_counts=True)
        ranked = ids[np.lexsort((ids, -counts))].tolist()
        chosen = list(dict.fromkeys([*always, *ranked]))[:size]
        return np.array(sorted(chosen), dtype=np.int64)


def looping(ids: np.ndarray) -> np.ndarray:
    """bool [n]: a run of `LOOP_TOKENS` ends here that stood in int32 `ids` [n] before."""
    found = np.zeros(len(ids), dtype=bool)
    seen: set[bytes] = set()
    for end in range(LOOP_TOKENS, len(ids) + 1):
        run = ids[end - LOOP_TOKENS : end].tobytes()
        found[end - 1] = run in seen
        seen.add(run)
    return found


def _mapped(path: Path, dtype: type, shape: tuple[int, ...]) -> np.memmap:
    if path.exists():
        return np.lib.format.open_memmap(path, mode="r+")
    return np.lib.format.open_memmap(path, mode="w+", dtype=dtype, shape=shape)
