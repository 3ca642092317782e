"""`ninfer-train mtp MODEL`: trains the MTP drafter of a model on text that the model writes.

It can be stopped at any moment: the same command goes on where it was. The same command with the
same seed on the same number of threads gives the same weights.
"""

import argparse
import dataclasses
import hashlib
import sys
import time
from pathlib import Path

import torch
from safetensors.torch import save_file

from services.engine.checkpoint.fetch import user_cache
from services.engine.device import set_threads
from services.engine.models.config import LlamaConfig
from services.engine.models.load import load_model
from services.engine.models.weights import Weights
from services.engine.training.acceptance import Acceptance
from services.engine.training.corpus import Corpus
from services.engine.training.dialogue import Dialogue
from services.engine.training.documentation import beginnings
from services.engine.training.module import TrainableMtp, initial_weights, trained_weights
from services.engine.training.recipe import Recipe, claim
from services.engine.training.trainer import Report, Trainer
from services.engine.training.writer import Writer
from shared.errors import CheckpointError, ConfigError
from shared.options import flags, with_completion
from shared.template import ChatTemplate
from shared.tokenizer import Tokenizer


def main(argv: list[str] | None = None) -> int:
    arguments = _parser().parse_args(argv)
    recipe = Recipe(**{name: getattr(arguments, name) for name in flags(Recipe)})
    model: Path = arguments.model
    work = arguments.work or user_cache() / "training" / f"{model.resolve().name}-mtp"
    try:
        if not (model / "config.json").is_file():
            raise CheckpointError(
                f"{model} holds no config.json; `ninfer-model fetch smollm2-135m` prints the "
                "folder of the demo model"
            )
        recipe.check()
        set_threads(arguments.threads)
        out = arguments.out or model / "mtp.safetensors"
        train(model, work, recipe, out, start=arguments.start)
    except (CheckpointError, ConfigError) as exc:
        sys.stderr.write(f"ninfer-train: {' '.join(str(exc).split())}\n")
        return 1
    except KeyboardInterrupt:
        sys.stderr.write("stopped; the same command goes on from here\n")
        return 130
    sys.stdout.write(f"{out}\n")
    return 0


def train(folder: Path, work: Path, recipe: Recipe, out: Path, *, start: Path | None) -> None:
    """Writes the text, trains, and puts the drafter's tensors into `out`.

    Raises:
        CheckpointError: the model folder or `start` is damaged, or has no usable chat template.
        ConfigError: `work` belongs to another run.
    """
    tokenizer = Tokenizer.load(folder)
    dialogue = Dialogue.of(ChatTemplate.load(folder, tokenizer))
    # `exact` matters to verification alone, and costs time
    model = load_model(folder, dtype=torch.bfloat16, device=torch.device("cpu"), exact=False)
    first = _first_weights(model.config, Weights(folder), start)
    begin = None if start is None else hashlib.sha256(start.read_bytes()).hexdigest()
    begun = beginnings() if recipe.documentation else []
    claim(
        work,
        {
            "model": folder.resolve().name,
            "start": begin,
            # another Python's documentation would make another text
            "beginnings": hashlib.sha256("\n".join(begun).encode()).hexdigest(),
            **dataclasses.asdict(recipe),
        },
    )
    corpus = Corpus(work, recipe, model.config.hidden_size)
    began_s = time.monotonic()
    before = corpus.written

    def wrote(rows: int) -> None:
        speed = (rows - before) * recipe.row_tokens / (time.monotonic() - began_s)
        _say(f"wrote {rows} of {recipe.rows} rows, {speed:.0f} tok/s")

    if before < recipe.rows:
        given = [tokenizer.encode_text(text).tolist() for text in begun]
        Writer(model, dialogue, recipe, given).fill(corpus, wrote)
    module = TrainableMtp(model.config, first)
    trainer = Trainer(model, corpus, recipe, module, work)
    if not trainer.step:
        _say_acceptance("untrained" if start is None else "at the start", *trainer.measure())
    trainer.train(_learned)
    tensors = {name: w.detach().bfloat16() for name, w in trainer.module.weights.items()}
    tensors["mtp.shortlist_ids"] = torch.from_numpy(trainer.shortlist).int()
    draft = out.with_name(f".{out.name}.part")
    save_file(tensors, draft, metadata={"format": "pt"})
    draft.chmod(0o644)  # safetensors writes 600, which would hide it from a container's user
    draft.replace(out)


def _first_weights(
    config: LlamaConfig, target: Weights, start: Path | None
) -> dict[str, torch.Tensor]:
    if start is None:
        return initial_weights(config, target)
    return trained_weights(config, target, start)


def _learned(report: Report) -> None:
    head = f"step {report.step}/{report.steps} {report.seconds:.0f} s loss {report.loss:.3f}"
    _say_acceptance(head, report.greedy, report.warm)


def _say_acceptance(head: str, *measured: Acceptance) -> None:
    parts = [head]
    for name, found in zip(("greedy", "sampled"), measured, strict=True):
        depths = " ".join(f"{share:.2f}" for share in found.by_depth)
        parts.append(f"{name} {found.tokens_a_round:.2f} tokens/round ({depths})")
    _say("  ".join(parts))


def _say(line: str) -> None:
    sys.stderr.write(line + "\n")
    sys.stderr.flush()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="ninfer-train", description=__doc__)
    commands = parser.add_subparsers(dest="drafter", required=True)
    one = commands.add_parser("mtp", help="a multi-token-prediction module")
    one.add_argument("model", type=Path, metavar="MODEL", help="model folder")
    one.add_argument("--out", type=Path, help="file to write (default: MODEL/mtp.safetensors)")
    one.add_argument("--work", type=Path, help="text and checkpoints (default: the user's cache)")
    one.add_argument("--start", type=Path, help="drafter to begin from (default: the last layer)")
    one.add_argument("--threads", type=int, default=0, help="0: one fewer than the cores")
    for field in dataclasses.fields(Recipe):
        flag = flags(Recipe)[field.name]
        kind = float if field.name == "learning_rate" else int
        about = f"{field.metadata['help']} (default: {field.default})"
        one.add_argument(flag, dest=field.name, type=kind, default=field.default, help=about)
    return with_completion(parser)


if __name__ == "__main__":
    sys.exit(main())
