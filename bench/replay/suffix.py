"""Suffix decoding (arXiv 2411.04975): the continuation that most occurrences of the tail share.

`SuffixDecoding` follows the published rule on the request's own prompt and output. Where the
`arctic-inference` package is installed, `ArcticSuffix` runs its tree instead.
"""

from collections.abc import Sequence
from importlib import import_module, util
from typing import Any

import numpy as np

from bench.replay.tasks import Task

DEEPEST_MATCH = 64
LEAST_PROBABILITY = 0.1


class SuffixDecoding:
    """For every match length the most frequent path; the one with the highest score wins.

    A path is as long as `factor` times the match, while its probability is at least 0.1; its score
    is the sum of its tokens' probabilities.
    """

    def __init__(self, width: int, factor: float = 4.0, least_score: float = 0.0) -> None:
        """With `least_score` weaker drafts give way, as arctic's hybrid with a neural drafter."""
        self.name = f"suffix decoding {factor:g}x/{width}"
        if least_score:
            self.name += f" score>={least_score:g}"
        self._width = width
        self._factor = factor
        self._least_score = least_score

    def begin(self, task: Task) -> None:
        """The text itself is the tree."""

    def propose(self, ids: np.ndarray, room: int) -> Sequence[int]:
        limit = min(self._width, room)
        best: list[int] = []
        best_score = 0.0
        for length, starts in _longer_and_longer(ids):
            path, score = _likeliest_path(ids, starts, min(limit, int(self._factor * length)))
            if score >= best_score:
                best, best_score = path, score
        return best if best_score >= self._least_score else ()

    def observe(self, ids: np.ndarray, drafted: int, accepted: int) -> None:
        """The text itself is the tree."""


class ArcticSuffix:
    """The `SuffixDecodingCache` of arctic-inference, one request at a time, no global tree."""

    def __init__(self, width: int, factor: float = 4.0) -> None:
        self.name = f"arctic-inference {factor:g}x/{width}"
        self._width = width
        self._factor = factor
        self._request = 0
        self._known = 0
        self._cache: Any = None

    @staticmethod
    def is_installed() -> bool:
        return util.find_spec("arctic_inference") is not None

    def begin(self, task: Task) -> None:
        module = import_module("arctic_inference.suffix_decoding")
        self._cache = module.SuffixDecodingCache(
            max_tree_depth=DEEPEST_MATCH + self._width, max_cached_requests=0
        )
        self._request += 1
        self._cache.start_request(self._request, task.prompt_ids)
        self._known = len(task.prompt_ids)

    def propose(self, ids: np.ndarray, room: int) -> Sequence[int]:
        self._cache.add_active_response(self._request, ids[self._known :].tolist())
        self._known = len(ids)
        draft = self._cache.speculate(
            self._request,
            ids[-DEEPEST_MATCH:],
            max_spec_tokens=min(self._width, room),
            max_spec_factor=self._factor,
            min_token_prob=LEAST_PROBABILITY,
        )
        return list(draft.token_ids)

    def observe(self, ids: np.ndarray, drafted: int, accepted: int) -> None:
        """The next proposal adds what was committed."""


def _longer_and_longer(ids: np.ndarray) -> list[tuple[int, np.ndarray]]:
    """(match length, positions behind each occurrence); of equal position sets only the longest."""
    ends = np.flatnonzero(ids[:-1] == ids[-1]) + 1
    found: list[tuple[int, np.ndarray]] = []
    length = 1
    while len(ends):
        longer = ends[ends > length]
        if length < min(DEEPEST_MATCH, len(ids) - 1):
            longer = longer[ids[longer - length - 1] == ids[-length - 1]]
        else:
            longer = longer[:0]
        if len(longer) < len(ends):
            found.append((length, ends))
        ends = longer
        length += 1
    return found


def _likeliest_path(ids: np.ndarray, starts: np.ndarray, limit: int) -> tuple[list[int], float]:
    """The greedy path of at most `limit` tokens by counts, and the sum of its probabilities."""
    path: list[int] = []
    probability, score = 1.0, 0.0
    while len(path) < limit:
        if len(starts) == 1:
            rest = ids[int(starts[0]) : int(starts[0]) + limit - len(path)].tolist()
            return path + rest, score + probability * len(rest)
        starts = starts[starts < len(ids)]
        if not len(starts):
            break
        tokens, counts = np.unique(ids[starts], return_counts=True)
        top = int(counts.argmax())
        probability *= float(counts[top]) / len(starts)
        if probability < LEAST_PROBABILITY:
            break
        path.append(int(tokens[top]))
        score += probability
        starts = starts[ids[starts] == tokens[top]] + 1
    return path, score
