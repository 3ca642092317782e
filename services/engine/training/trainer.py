"""Distils the target into its MTP module: multi-step loss over text the target wrote.

FastMTP (Cai et al. 2025): the same module is unrolled, and depth k weighs `DECAY ** k`. The loss
is the divergence from the target's own distribution over the shortlist, not from the sampled token.
"""

import json
import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch.nn import functional

from services.engine.models.llama import LlamaModel
from services.engine.training.acceptance import Acceptance
from services.engine.training.corpus import Corpus
from services.engine.training.module import TrainableMtp
from services.engine.training.recipe import Recipe

DECAY = 0.6
WARM_UP = 0.04
CLIP = 1.0
SAVE_STEPS = 200
HELDOUT_BATCH = 8


class Report(NamedTuple):
    step: int
    steps: int
    loss: float  # nats a token, mean of the steps since the last report
    greedy: Acceptance  # of the held-out rows that the target answered greedily
    warm: Acceptance  # of those that it sampled
    seconds: float  # of training so far in this process


class Trainer:
    def __init__(
        self, model: LlamaModel, corpus: Corpus, recipe: Recipe, module: TrainableMtp, work: Path
    ) -> None:
        self._corpus = corpus
        self._recipe = recipe
        self._state = work / "state.safetensors"
        self.module = module
        self._learned = recipe.rows - recipe.heldout
        always = model.config.eos_token_ids
        self.shortlist = corpus.shortlist(self._learned, recipe.shortlist, always)
        self._embedding = model.embedding
        self._head = model.head_weight[self.shortlist].bfloat16()  # [shortlist, hidden]
        self._parameters = list(module.weights.values())
        self._optimiser = torch.optim.AdamW(
            self._parameters, lr=recipe.learning_rate, betas=(0.9, 0.95), weight_decay=0.01
        )
        self.step = 0
        self._resume()

    def train(self, report: Callable[[Report], None]) -> None:
        """Until all epochs are done; a checkpoint and a report every `SAVE_STEPS` steps."""
        recipe, losses, began_s = self._recipe, [], time.monotonic()
        while self.step < recipe.steps:
            losses.append(self._learn(self._rows_of(self.step)))
            self.step += 1
            if self.step % SAVE_STEPS == 0 or self.step == recipe.steps:
                self._save()
                greedy, warm = self.measure()
                mean = sum(losses) / len(losses)
                seconds = time.monotonic() - began_s
                report(Report(self.step, recipe.steps, mean, greedy, warm, seconds))
                losses = []

    @torch.no_grad()
    def measure(self) -> tuple[Acceptance, Acceptance]:
        """On the held-out rows: greedy ones (even) and sampled ones (odd)."""
        recipe = self._recipe
        found = Acceptance(recipe.depths), Acceptance(recipe.depths)
        for first in range(self._learned, recipe.rows, HELDOUT_BATCH):
            rows = np.arange(first, min(first + HELDOUT_BATCH, recipe.rows))
            ids = self._corpus.ids[rows]
            outputs = self._unrolled(rows)
            right = np.zeros((len(rows), recipe.depths, recipe.row_tokens), dtype=bool)
            for depth, output in enumerate(outputs):
                picked = functional.linear(output.bfloat16(), self._head).argmax(-1).numpy()
                drafts = self.shortlist[picked]  # of token t + 2 + depth
                ahead = 2 + depth
                right[:, depth, ahead:] = drafts[:, :-ahead] == ids[:, ahead:]
            for i, row in enumerate(rows.tolist()):
                written_at = row % recipe.writing
                found[written_at % 2].walk(self._corpus.learnable(rows[i : i + 1])[0], right[i])
        return found

    def _learn(self, rows: np.ndarray) -> float:
        recipe = self._recipe
        for group in self._optimiser.param_groups:
            group["lr"] = self._rate()
        outputs = self._unrolled(rows)
        wanted = self._corpus.learnable(rows)
        wanted[:, : 1 + recipe.depths] = False
        if not wanted.any():  # all loops or questions; a mean over nothing is not a number
            return 0.0
        i_row, place = (torch.from_numpy(part) for part in np.nonzero(wanted))
        hidden = self._corpus.hidden(rows)[i_row, place - 1]
        with torch.no_grad():
            target = functional.linear(hidden, self._head).float().softmax(-1)
            entropy = -torch.special.xlogy(target, target).sum(-1).mean()
        weights = [DECAY**depth for depth in range(recipe.depths)]
        loss = torch.zeros(())
        for depth, output in enumerate(outputs):
            drafted = functional.linear(output[i_row, place - 2 - depth].bfloat16(), self._head)
            divergence = functional.cross_entropy(drafted.float(), target) - entropy
            loss = loss + weights[depth] / sum(weights) * divergence
        self._optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(self._parameters, CLIP)
        self._optimiser.step()
        return float(loss.detach())

    def _unrolled(self, rows: np.ndarray) -> list[torch.Tensor]:
        ids = torch.from_numpy(self._corpus.ids[rows]).long()
        embedded = functional.embedding(ids, self._embedding).float()
        return self.module.unroll(embedded, self._corpus.hidden(rows).float(), self._recipe.depths)

    def _rows_of(self, step: int) -> np.ndarray:
        """Every row once an epoch, in an order of the seed."""
        epoch, place = divmod(step, self._recipe.steps_an_epoch)
        order = np.random.default_rng((self._recipe.seed, epoch)).permutation(self._learned)
        start = place * self._recipe.batch
        return np.sort(order[start : start + self._recipe.batch])

    def _rate(self) -> float:
        done = self.step / self._recipe.steps
        if done < WARM_UP:
            return self._recipe.learning_rate * (self.step + 1) / (WARM_UP * self._recipe.steps)
        turn = math.pi * (done - WARM_UP) / (1 - WARM_UP)
        return self._recipe.learning_rate * (0.05 + 0.95 * (1 + math.cos(turn)) / 2)

    def _save(self) -> None:
        """Weights and moments, in place of the last checkpoint in one step."""
        tensors = {}
        for name, weight in self.module.weights.items():
            tensors[name] = weight.detach()
            state = self._optimiser.state[weight]
            tensors[f"first.{name}"], tensors[f"second.{name}"] = (
                state["exp_avg"],
                state["exp_avg_sq"],
            )
        draft = self._state.with_suffix(".part")
        save_file(tensors, draft, metadata={"step": json.dumps(self.step)})
        draft.replace(self._state)

    def _resume(self) -> None:
        if not self._state.exists():
            return
        with safe_open(self._state, framework="pt") as file:
            self.step = json.loads(file.metadata()["step"])
            for name, weight in self.module.weights.items():
                weight.data.copy_(file.get_tensor(name))
                self._optimiser.state[weight] = {
                    "step": torch.tensor(float(self.step)),
                    "exp_avg": file.get_tensor(f"first.{name}"),
                    "exp_avg_sq": file.get_tensor(f"second.{name}"),
                }
