"""`python -m bench mtp`: does the neural drafter pay on the demo model, alone and under copies?

Real servers stand side by side and get the same requests in turn: nothing drafted, copies alone,
the drafter with copies, and the drafter alone with every round its full width. Answers that loop
are left out where acceptance is counted, since a loop is easy to draft. Exit status 1 if a bar
falls short.
"""

import argparse
import shutil
import statistics
import sys
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file, save_file

from bench.first_light import Bar, file_copy, long_prompt, progress, report
from bench.mtp_prompts import QUESTIONS
from bench.server import BenchServer
from bench.texts import CONFIG, INVENTORY
from services.engine.checkpoint.fetch import default_folder
from services.engine.models.load import load_model
from services.engine.training.corpus import USER, Corpus, looping
from services.engine.training.dialogue import Dialogue
from services.engine.training.recipe import Recipe
from services.engine.training.writer import Writer
from shared.template import ChatTemplate
from shared.tokenizer import Tokenizer

K = 3
UNSEEN_SEED = 1_000
MTP = ("--spec=mtp", f"--draft-tokens={K}", "--lm-head-draft")
SERVERS = {
    "off": (),
    "copies": ("--ngram-draft-tokens=15",),
    "both": (*MTP, "--adaptive-mtp"),
    "always": (*MTP, "--ngram-policy=fixed", "--ngram-draft-tokens=0"),
}
START_S = 240.0  # six of them start while others work; a minute was too short at a load of ten
MOST_LOOPING = 0.2  # of an answer's tokens
EDITS = (INVENTORY, CONFIG, f"{CONFIG}\n\n{INVENTORY}")
Line = dict[str, Any]
SAMPLED: Line = {"temperature": 0.8}


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench mtp", description=__doc__)
    parser.add_argument("--model", type=Path, default=default_folder("smollm2-135m"))
    parser.add_argument("--json", action="store_true", help="one object a line")
    parser.add_argument("--quick", action="store_true", help="fewer questions, shorter answers")
    options = parser.parse_args(argv)
    questions, output = (QUESTIONS[:6], 64) if options.quick else (QUESTIONS, 128)
    servers = {
        name: BenchServer.start(options.model, *flags, start_s=START_S)
        for name, flags in SERVERS.items()
    }
    try:
        bars = told(acceptance(servers["always"], options.model, questions, output))
        bars += told(prose(servers, questions, output))
        bars += told(edits(servers, 2 if options.quick else 4))
        bars += told([prefill(servers, 2 if options.quick else 12)])
    finally:
        for server in servers.values():
            server.stop()
    bars += told(untrained(options.model))
    report(bars, as_json=options.json)
    return 0 if all(bar.holds for bar in bars) else 1


def told(bars: list[Bar]) -> list[Bar]:
    """Tells them before the end: on a loaded machine that is half an hour away."""
    for bar in bars:
        progress(f"{bar.name} {bar.value:.3f}, {bar.conditions}")
    return bars


def acceptance(
    server: BenchServer, model: Path, questions: Sequence[str], output: int
) -> list[Bar]:
    """On questions that the model wrote itself, as those of its training text but with a seed that
    training has not seen, and on questions of people."""
    tokenizer = Tokenizer.load(model)
    kinds = {"own": written_questions(model, tokenizer, len(questions)), "asked": questions}
    bars = []
    for kind, asked in kinds.items():
        for temperature, bar in ((0.0, 1.7), (0.8, 1.5)):
            progress(f"acceptance: {kind} questions at temperature {temperature}")
            found = Rounds()
            for n, question in enumerate(asked):
                more: Line = {"max_tokens": output, "temperature": temperature, "seed": n}
                text, line = server.ask(chat(question), **more)
                found.add(line, looping(tokenizer.encode_text(text)))
            name = f"tokens_per_round_{kind}_t{temperature:.1f}"
            bars.append(Bar(name, found.tokens, bar, True, found.conditions))
    return bars


@dataclass
class Rounds:
    """All rounds together, so that long answers weigh more."""

    count: int = 0
    accepted: int = 0
    left_out: int = 0
    positions: np.ndarray = field(default_factory=lambda: np.zeros(K))

    def add(self, line: Line, loops: np.ndarray) -> None:
        if not len(loops) or loops.mean() >= MOST_LOOPING:
            self.left_out += 1
            return
        neural = source(line, "neural")
        self.count += neural["rounds"]
        self.accepted += neural["accepted_tokens"]
        self.positions += line["speculative"]["accepted_per_position"][:K]

    @property
    def tokens(self) -> float:
        return 1 + self.accepted / max(1, self.count)

    @property
    def conditions(self) -> str:
        shares = " ".join(f"{share:.2f}" for share in self.positions / max(1, self.count))
        return f"K={K}, {self.count} rounds, by depth {shares}, {self.left_out} loops left out"


def written_questions(model: Path, tokenizer: Tokenizer, count: int) -> list[str]:
    dialogue = Dialogue.of(ChatTemplate.load(model, tokenizer))
    recipe = Recipe(seed=UNSEEN_SEED, rows=count, writing=count, row_tokens=112, openings=0)
    target = load_model(model, dtype=torch.bfloat16, device=torch.device("cpu"), exact=False)
    with tempfile.TemporaryDirectory(prefix="ninfer-bench-") as folder:
        corpus = Corpus(Path(folder), recipe, target.config.hidden_size)
        Writer(target, dialogue, recipe).fill(corpus, lambda _: None)
        asked = []
        for ids, roles in zip(corpus.ids, corpus.roles, strict=True):
            first = int(np.flatnonzero(roles == USER)[0])
            stop = first + int(np.flatnonzero(roles[first:] != USER)[0])
            asked.append(tokenizer.decode(ids[first:stop]).strip())
    return asked


def prose(servers: dict[str, BenchServer], questions: Sequence[str], output: int) -> list[Bar]:
    """Whole requests, sampled: greedy, the demo model loops, and copies would speed that up."""
    lines: dict[str, list[Line]] = {"off": [], "copies": [], "both": []}
    for n, question in enumerate(questions):
        progress(f"prose: {n + 1} of {len(questions)}")
        for name in in_turn(lines, n):
            asked: Line = {"max_tokens": output, "seed": n, **SAMPLED}
            lines[name].append(servers[name].ask(chat(question), **asked)[1])
    condition = f"{len(questions)} questions, {output} tokens, whole requests, temperature 0.8"
    progress(f"prose: {passes(lines['both']):.2f} tokens a pass with both")
    return [
        Bar("prose_speed_mtp_vs_off", speed_up(lines, "off"), 1.05, True, condition),
        Bar("prose_speed_mtp_vs_copies", speed_up(lines, "copies"), 0.98, True, condition),
    ]


def edits(servers: dict[str, BenchServer], repeats: int) -> list[Bar]:
    """Files written again, and what the model says behind them."""
    lines: dict[str, list[Line]] = {"off": [], "copies": [], "both": []}
    for repeat in range(repeats):
        progress(f"edits: repeat {repeat + 1} of {repeats}")
        for text in EDITS:
            for name in in_turn(lines, repeat):
                lines[name].append(servers[name].ask(file_copy(text), max_tokens=256)[1])
    condition = f"{len(EDITS)} files, 256 tokens, {repeats} repeats, greedy"
    both, alone = (passes(lines[name]) for name in ("both", "copies"))
    return [
        Bar("edit_speed_both_vs_copies", speed_up(lines, "copies"), 1.0, True, condition),
        Bar("edit_speed_both_vs_off", speed_up(lines, "off"), 0.98, True, condition),
        Bar("edit_tokens_per_pass_vs_copies", both / alone, 1.0, True, condition),
    ]


def prefill(servers: dict[str, BenchServer], repeats: int) -> Bar:
    """Requests that are all prompt."""
    lines: dict[str, list[Line]] = {"off": [], "both": []}
    for repeat in range(repeats):
        progress(f"prefill: repeat {repeat + 1} of {repeats}")
        messages = [{"role": "user", "content": long_prompt(repeat)}]
        for name in in_turn(lines, repeat):
            lines[name].append(servers[name].ask(messages, max_tokens=1)[1])
    tokens = lines["off"][0]["result"]["prompt_tokens"]
    condition = f"{tokens} prompt tokens, {repeats} repeats"
    return Bar("prefill_speed_mtp_vs_off", speed_up(lines, "off"), 0.98, True, condition)


def untrained(model: Path) -> list[Bar]:
    """A drafter of random weights: the same text, and soon no more neural rounds."""
    with tempfile.TemporaryDirectory(prefix="ninfer-bench-") as folder:
        copy = Path(folder) / model.name
        shutil.copytree(model, copy)
        generator = torch.Generator().manual_seed(0)
        tensors = load_file(model / "mtp.safetensors")
        for name, tensor in tensors.items():
            if tensor.dim() == 2:
                noise = torch.randn(tensor.shape, generator=generator)
                tensors[name] = (0.05 * noise).to(tensor.dtype)
        save_file(tensors, copy / "mtp.safetensors")
        server = BenchServer.start(copy, *MTP, start_s=START_S)
        plain = BenchServer.start(copy, start_s=START_S)
        try:
            asked: Line = {"max_tokens": 256, "seed": 3, **SAMPLED}
            text, line = server.ask(chat(QUESTIONS[0]), **asked)
            expected, _ = plain.ask(chat(QUESTIONS[0]), **asked)
        finally:
            server.stop()
            plain.stop()
    rounds = source(line, "neural")["rounds"]
    condition = f"{line['result']['decode_passes']} passes"
    return [
        Bar("untrained_same_text", float(text == expected), 1, True, condition),
        Bar("untrained_neural_rounds", rounds, 32, False, condition),
    ]


def in_turn(names: Iterable[str], repeat: int) -> list[str]:
    """The other way around in every second repeat: with one order only, the server that is asked
    behind another was a tenth slower at the same passes."""
    ordered = list(names)
    return ordered if repeat % 2 else ordered[::-1]


def speed_up(lines: dict[str, list[Line]], against: str) -> float:
    """Median over requests of how much faster the one with the drafter was, start to end."""
    return statistics.median(
        float(slow["timings_seconds"]["total"] / fast["timings_seconds"]["total"])
        for slow, fast in zip(lines[against], lines["both"], strict=True)
    )


def passes(lines: list[Line]) -> float:
    """Tokens a pass, all requests together."""
    tokens = sum(int(line["result"]["completion_tokens"]) - 1 for line in lines)
    return tokens / sum(int(line["result"]["decode_passes"]) for line in lines)


def source(line: Line, kind: str) -> dict[str, Any]:
    for found in line["speculative"]["sources"]:
        if found["kind"] == kind:
            return dict(found)
    return {"rounds": 0, "drafted_tokens": 0, "accepted_tokens": 0}


def chat(question: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": question}]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
