"""`python -m bench replay learn`: the survival curves that the adaptive policy starts from.

Replays the edits of the learning pairs under the policy itself, and counts for every candidate
that it considers, drafted or not, how far the known output agrees with it.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from bench.replay.ours import SourceBuilder
from bench.replay.packages import LEARN_PAIRS, PackagePair, descriptions, fetch
from bench.replay.tasks import Task, TaskMaker
from services.engine.checkpoint.fetch import default_folder
from services.engine.drafting import evidence
from services.engine.drafting.adaptive import AdaptivePolicy
from services.engine.drafting.cost import RoundCost
from services.engine.drafting.evidence import BUCKETS, DEPTHS, Evidence, Priors, Survival
from services.engine.drafting.neural_window import NeuralWindow
from services.engine.drafting.round import Round
from services.engine.drafting.sources import RequestSources
from services.engine.ledger import Ledger
from services.engine.tally import Tally
from shared.template import ChatTemplate
from shared.tokenizer import Tokenizer

WIDTH = 63
PASSES = 3  # the policy decides which states are met, so it is learned again from its own
BACK_OFF = 20.0  # trials that the next coarser curve is worth


@dataclass
class Counts:
    hits: np.ndarray = field(default_factory=lambda: np.zeros((BUCKETS, len(DEPTHS))))
    trials: np.ndarray = field(default_factory=lambda: np.zeros((BUCKETS, len(DEPTHS))))

    def add(self, seen: Evidence, compared: int, agreed: int) -> None:
        for i_depth, depth in enumerate(DEPTHS):
            if depth > compared and agreed >= compared:
                break
            self.trials[seen.bucket, i_depth] += 1
            if agreed < depth:
                break
            self.hits[seen.bucket, i_depth] += 1

    def hazards(self) -> np.ndarray:
        """[BUCKETS, DEPTHS]: each bucket leans on coarser ones as far as it lacks trials."""
        shape = (len(evidence.PLACES), len(evidence.LENGTHS), len(evidence.TIES), 3, len(DEPTHS))
        hits, trials = self.hits.reshape(shape), self.trials.reshape(shape)
        curve = np.full(shape, 0.5)
        for axes in ((0, 1, 2, 3), (0, 2, 3), (2, 3), (3,), ()):
            some, all_ = hits.sum(axes, keepdims=True), trials.sum(axes, keepdims=True)
            curve = (some + BACK_OFF * curve) / (all_ + BACK_OFF)
        curve = np.clip(curve, 1 - evidence.MOST_CERTAIN, evidence.MOST_CERTAIN)
        return np.broadcast_to(curve, shape).reshape(BUCKETS, len(DEPTHS))


def learn(
    tasks: Sequence[Task], sources: SourceBuilder, special_ids: frozenset[int], priors: Priors
) -> Counts:
    counts = Counts()
    for task in tasks:
        _replay(task, sources, special_ids, priors, counts)
    return counts


def _replay(
    task: Task,
    builder: SourceBuilder,
    special_ids: frozenset[int],
    priors: Priors,
    counts: Counts,
) -> None:
    sources = RequestSources(special_ids, awaiting=True)
    for part in builder.build(task):
        sources.add_index(part)
    no_neural = NeuralWindow(0, adaptive=False)
    cost = RoundCost.linear(0.007)
    policy = AdaptivePolicy(Survival(priors), cost, min_match=1, window=no_neural)
    output = task.output_ids
    ledger = Ledger(task.prompt_ids, len(output))
    ledger.append(output[:1].tolist())
    while ledger.output_len < len(output):
        sources.follow(ledger)
        round_ = _round(sources, ledger)
        policy.weigh(round_)
        draft = policy.propose(round_, None)
        rest = output[ledger.output_len :]
        if policy.candidate is not None and policy.evidence is not None:
            at = policy.candidate.at
            shown = at.source.continuation(
                at.position, min(WIDTH, policy.candidate.available, len(rest))
            )
            counts.add(policy.evidence, len(shown), _agreed(shown, rest))
        drafts = np.array(draft.token_ids if draft else (), np.int32)[: len(rest)]
        accepted = _agreed(drafts, rest)
        ledger.append(rest[: accepted + 1].tolist())
        policy.observe(ledger, draft, accepted)


def _round(sources: RequestSources, ledger: Ledger) -> Round:
    return Round(
        sources=sources,
        ledger=ledger,
        room=WIDTH,
        copy_room=WIDTH,
        tally=Tally(0.0, WIDTH),
        columns=1,
        rows=1,
        neural_room=0,
        neural_costs=(0.0,),
    )


def _agreed(drafts: np.ndarray, truth: np.ndarray) -> int:
    differ = np.flatnonzero(drafts != truth[: len(drafts)])
    return int(differ[0]) if len(differ) else len(drafts)


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench replay learn", description=__doc__)
    parser.add_argument("--pairs", nargs="+", metavar="NAME:OLD:NEW", default=LEARN_PAIRS)
    parser.add_argument("--tasks", type=int, default=40, help="of each kind (default: 40)")
    parser.add_argument("--model", type=Path, default=default_folder("smollm2-135m"))
    parser.add_argument("--out", type=Path, required=True, help="the file to write")
    options = parser.parse_args(argv)
    tokenizer = Tokenizer.load(options.model)
    pairs = [PackagePair.parse(text) for text in options.pairs]
    edits = fetch(pairs)
    template = ChatTemplate.load(options.model, tokenizer)
    tasks = TaskMaker(tokenizer, template, edits, descriptions(pairs)).make(options.tasks, seed=2)
    builder = SourceBuilder(tokenizer)
    priors = Priors([[0.8] * len(DEPTHS) for _ in range(BUCKETS)])
    counts = Counts()
    for i_pass in range(PASSES):
        counts = learn(tasks, builder, tokenizer.special_ids, priors)
        priors = Priors(counts.hazards().tolist())
        print(f"pass {i_pass + 1}: {int(counts.trials[:, 0].sum())} rounds", file=sys.stderr)
    options.out.write_text(_document(priors, counts, options.pairs, options.tasks))
    return 0


def _document(priors: Priors, counts: Counts, pairs: Sequence[str], tasks: int) -> str:
    head = {
        "learned_by": "python -m bench replay learn",
        "pairs": list(pairs),
        "tasks_of_each_kind": tasks,
        "rounds": int(counts.trials[:, 0].sum()),
        "depths": DEPTHS,
    }
    rows = ",\n".join(json.dumps([round(p, 4) for p in row]) for row in priors.hazards)
    return f'{json.dumps(head, indent=1)[:-2]},\n "hazards": [\n{rows}\n]}}\n'


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
