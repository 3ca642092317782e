"""`python -m bench weights`: what the forms of `--weights` gain and cost, against bf16 in one run.

Speed is that of whole passes behind 500 tokens, the forms in turns; quality is what each says of a
text that is read in one go. Prints a table, or with --json one object a line.
"""

import argparse
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import torch

from bench.texts import CONFIG, INVENTORY
from services.engine.batch import Batch, RowSpan
from services.engine.checkpoint.fetch import default_folder
from services.engine.device import set_threads
from services.engine.kv import KvCache
from services.engine.models.load import load_model
from services.engine.models.weight_form import WeightForm
from services.engine.probe import is_exact
from shared.errors import ConfigError
from shared.tokenizer import Tokenizer

FORMS: tuple[WeightForm, ...] = ("full", "int8", "int4")
WIDTHS = (1, 4, 16, 64, 256)
CONTEXT = 500  # tokens before a timed pass
CPU = torch.device("cpu")


@dataclass
class Row:
    weights: str
    exact: bool
    weight_mb: float
    load_s: float
    pass_ms: dict[int, float]  # the fastest of the repeats, by columns
    logit_error: float  # ||ours - bf16|| / ||bf16||
    agreement: float  # share of the tokens where both say the same next one
    perplexity: float


class Subject:
    """One model that has read the text."""

    def __init__(self, folder: Path, form: WeightForm, ids: torch.Tensor) -> None:
        began_s = time.perf_counter()
        self._model = load_model(folder, dtype=torch.bfloat16, device=CPU, form=form)
        load_s = time.perf_counter() - began_s
        config = self._model.config
        capacity = max(len(ids), CONTEXT + max(WIDTHS))
        self._kv = KvCache(config, slots=1, max_context=capacity, dtype=torch.bfloat16, device=CPU)
        self._ids = torch.arange(capacity) % config.vocab_size
        self._ids[: len(ids)] = ids
        exact = is_exact(self._model, self._kv)
        self.logits = self.run(0, len(ids))
        self.row = Row(form, exact, self._model.weight_bytes / 1e6, load_s, {}, 0.0, 1.0, 0.0)

    def run(self, start: int, columns: int) -> torch.Tensor:
        here = torch.arange(start, start + columns)
        rows = (RowSpan(slot=0, start=start, columns=columns, offset=0),)
        batch = Batch(self._ids[here], here, rows, torch.arange(columns))
        return self._model.forward(batch, self._kv).logits

    def time(self, columns: int) -> None:
        began_s = time.perf_counter()
        self.run(CONTEXT, columns)
        taken_ms = (time.perf_counter() - began_s) * 1e3
        self.row.pass_ms[columns] = min(taken_ms, self.row.pass_ms.get(columns, taken_ms))

    def judge(self, full: torch.Tensor, ids: torch.Tensor) -> None:
        said = self.logits.log_softmax(-1)[:-1].gather(1, ids[1:, None])
        self.row.perplexity = float((-said.mean()).exp())
        self.row.logit_error = float((self.logits - full).norm() / full.norm())
        self.row.agreement = float((self.logits.argmax(-1) == full.argmax(-1)).float().mean())


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="bench weights", description=__doc__)
    parser.add_argument("--json", action="store_true", help="one JSON object a line")
    parser.add_argument("--quick", action="store_true", help="fewer repeats")
    parser.add_argument("--model", type=Path, default=default_folder("smollm2-135m"))
    parser.add_argument("--threads", type=int, default=0, help="as the engine's (default 0: auto)")
    options = parser.parse_args(argv)
    try:
        set_threads(options.threads)
        text = f"{INVENTORY}\n{CONFIG}\n{Path(__file__).read_text()}"
        encoded = Tokenizer.load(options.model).encode_text(text)
        ids = torch.from_numpy(encoded.astype("int64"))
        subjects = [Subject(options.model, form, ids) for form in FORMS]
    except ConfigError as exc:
        sys.stderr.write(f"weights: {exc}\n")
        return 1
    for _ in range(3 if options.quick else 15):
        for columns in WIDTHS:
            for subject in subjects:
                subject.time(columns)
    for subject in subjects:
        subject.judge(subjects[0].logits, ids)
        print(json.dumps(asdict(subject.row)) if options.json else shown(subject.row))
    return 0 if all(subject.row.exact for subject in subjects) else 1


def shown(row: Row) -> str:
    passes = ", ".join(f"{ms:.1f}" for ms in row.pass_ms.values())
    return (
        f"{row.weights:5} {row.weight_mb:4.0f} MB  {'exact' if row.exact else 'NOT EXACT':9}"
        f" {passes} ms a pass of {', '.join(map(str, row.pass_ms))} columns;"
        f" loaded in {row.load_s:.1f} s; logits off by {row.logit_error:.3f},"
        f" next tokens as in full {row.agreement:.3f}, perplexity {row.perplexity:.2f}"
    )
