"""How far a copy will be accepted, from the evidence for it.

Candidates fall into buckets; each bucket has a survival curve, learned offline on replayed edits
(`priors.json`) and calibrated by what the request's own drafts did. Only past rounds are counted.
"""

import json
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from typing import Any, NamedTuple

# A curve is its hazards: the chance to reach each depth from the one before. Within a stretch
# every token has the same chance.
DEPTHS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 63)
STRETCHES = tuple(b - a for a, b in zip((0, *DEPTHS), DEPTHS, strict=False))
ROOTS = tuple(1 / stretch for stretch in STRETCHES)
PLACES = ("on track", "near", "elsewhere", "across")
LENGTHS = (1, 2, 3, 4, 6, 9, 16, 64)  # lower edges, in tokens
LENGTH_OF = [max(0, bisect_right(LENGTHS, length) - 1) for length in range(LENGTHS[-1] + 1)]
TIES = ("unique", "agreeing", "split", "alike")
RECENT = (1.0, 4.0)  # edges of the mean of accepted drafts of a round
BUCKETS = len(PLACES) * len(LENGTHS) * len(TIES) * (len(RECENT) + 1)
LONG_MATCH = 9  # tokens; shorter and longer matches are calibrated apart

OWN_WEIGHT = 12.0  # trials that a bucket's prior is worth
CALIBRATION_WEIGHT = 3.0  # hits that the priors' own scale is worth
MOST_CERTAIN = 0.999
HOPELESS = 0.02  # a depth that is reached less often is not looked behind


class Evidence(NamedTuple):
    place: int  # index into PLACES
    length: int  # of the match, 0..64
    ties: int  # index into TIES
    recent: float  # the request's mean of accepted drafts of a round

    @property
    def bucket(self) -> int:
        length = LENGTH_OF[self.length]
        recent = (self.recent >= RECENT[0]) + (self.recent > RECENT[1])
        by_place = self.place * len(LENGTHS) + length
        return (by_place * len(TIES) + self.ties) * (len(RECENT) + 1) + recent


@dataclass(frozen=True)
class Priors:
    hazards: Sequence[Sequence[float]]  # [BUCKETS][DEPTHS]

    @classmethod
    def parse(cls, document: dict[str, Any]) -> "Priors":
        """Raises ValueError: the file was learned for other buckets."""
        hazards = document["hazards"]
        if len(hazards) != BUCKETS or any(len(row) != len(DEPTHS) for row in hazards):
            raise ValueError("priors.json does not fit the buckets; learn it again")
        return cls(hazards)


@cache
def learned() -> Priors:
    text = resources.files(__package__).joinpath("priors.json").read_text(encoding="utf-8")
    return Priors.parse(json.loads(text))


class Width(NamedTuple):
    drafts: int
    value: float  # tokens gained, less what their columns cost at the running rate


@dataclass
class Survival:
    """One request's calibrated curves."""

    priors: Priors
    _hits: dict[int, list[float]] = field(default_factory=dict)  # by bucket, then depth
    _trials: dict[int, list[float]] = field(default_factory=dict)
    # by long or short match, then depth: hits that were seen and hits that the priors foretold
    _seen: list[list[float]] = field(default_factory=lambda: [[0.0] * len(DEPTHS) for _ in "sl"])
    _foretold: list[list[float]] = field(
        default_factory=lambda: [[0.0] * len(DEPTHS) for _ in "sl"]
    )
    # what the priors are multiplied by
    _scales: list[list[float]] = field(default_factory=lambda: [[1.0] * len(DEPTHS) for _ in "sl"])

    def hazards(self, evidence: Evidence) -> Sequence[float]:
        """[DEPTHS]: the chance of each stretch, given that it is reached."""
        bucket = evidence.bucket
        scales = self._scales[evidence.length >= LONG_MATCH]
        prior = self.priors.hazards[bucket]
        # `min` written out, and all in one pass: this runs for every proposal.
        most, weight = MOST_CERTAIN, OWN_WEIGHT
        trials = self._trials.get(bucket)
        if trials is None:
            known = zip(prior, scales, strict=True)
            return [chance if (chance := p * scale) < most else most for p, scale in known]
        own = zip(prior, scales, self._hits[bucket], trials, strict=True)
        return [
            (weight * (chance if (chance := p * scale) < most else most) + hits) / (weight + tried)
            for p, scale, hits, tried in own
        ]

    def observe(self, evidence: Evidence, drafted: int, accepted: int) -> None:
        bucket = evidence.bucket
        long = evidence.length >= LONG_MATCH
        hits = self._hits.setdefault(bucket, [0.0] * len(DEPTHS))
        trials = self._trials.setdefault(bucket, [0.0] * len(DEPTHS))
        prior = self.priors.hazards[bucket]
        seen, foretold, scales = self._seen[long], self._foretold[long], self._scales[long]
        for i_depth, depth in enumerate(DEPTHS):
            if depth > drafted:
                break
            hit = accepted >= depth
            trials[i_depth] += 1
            hits[i_depth] += hit
            foretold[i_depth] += prior[i_depth]
            seen[i_depth] += hit
            weight = CALIBRATION_WEIGHT
            scales[i_depth] = (seen[i_depth] + weight) / (foretold[i_depth] + weight)
            if not hit:
                break


def best_width(
    hazards: Iterable[float], most: int, added: Sequence[float], rate: float, first: float = 1.0
) -> Width:
    """The width of the most value; `first` is the chance that drafting gets to its first token.

    `added[w]` is what w columns cost, `rate` how many tokens that cost usually yields.
    """
    reached, expected = first, 0.0
    drafts, most_value = 0, 0.0
    done = 0
    for tokens, root, chance in zip(STRETCHES, ROOTS, hazards, strict=False):
        if done >= most or reached < HOPELESS:
            break
        if tokens == 1:
            expected += reached * chance
            reached *= chance
        else:
            each = chance**root
            if tokens > most - done:
                tokens = most - done
                chance = each**tokens
            expected += reached * (tokens if each >= 1 else each * (1 - chance) / (1 - each))
            reached *= chance
        done += tokens
        value = expected - rate * added[done]
        if value > most_value:
            drafts, most_value = done, value
    return Width(drafts, most_value)
