"""The target writes its own training text: questions and answers from its chat prefix alone.

After Magpie (Xu et al. 2024): behind the opening of a user's turn a chat model writes a question.
Some questions may be begun for it; what it is given it does not choose, so nothing learns from it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch

from services.engine.batch import Batch, RowSpan
from services.engine.kv import KvCache
from services.engine.models.llama import LlamaModel
from services.engine.training.corpus import ANSWER, FORCED, USER, Corpus
from services.engine.training.dialogue import Dialogue
from services.engine.training.recipe import Recipe

USER_TEMPERATURE = 1.0
BEGUN_TEMPERATURE = 0.7  # of questions that are various by how they are begun
USER_FLOOR = 0.02  # of the likeliest token's probability; keeps questions to the point
OPENED = 0.75  # share of the questions whose first token is one of `Recipe.openings`
ANSWER_TEMPERATURES = (0.7, 0.9)  # of the odd rows; the even ones answer greedily


@dataclass
class _Row:
    temperature: float  # of its answers
    asking: float = USER_TEMPERATURE
    forced: list[int] = field(default_factory=list)
    role: int = USER  # of the next free token
    said: int = 0  # tokens of this turn, those that it is begun with among them
    roles: list[int] = field(default_factory=list)


class Writer:
    def __init__(
        self,
        model: LlamaModel,
        dialogue: Dialogue,
        recipe: Recipe,
        beginnings: Sequence[Sequence[int]] = (),
    ) -> None:
        """`beginnings` are token ids, of which `recipe.documentation` needs some."""
        assert beginnings or not recipe.documentation
        self._model = model
        self._beginnings = beginnings
        self._dialogue = dialogue
        self._recipe = recipe
        self._kv = KvCache(
            model.config,
            slots=recipe.writing,
            max_context=recipe.row_tokens,
            dtype=model.dtype,
            device=model.device,
        )

    def fill(self, corpus: Corpus, report: Callable[[int], None]) -> None:
        """Writes the rows that are missing; `report` gets how many are there."""
        while (first := corpus.written) < self._recipe.rows:
            count = min(self._recipe.writing, self._recipe.rows - first)
            corpus.put(first, *self._write(first, count))
            report(first + count)

    @torch.inference_mode()
    def _write(self, first: int, count: int) -> tuple[np.ndarray, np.ndarray, torch.Tensor]:
        recipe = self._recipe
        generator = torch.Generator().manual_seed(recipe.seed * 1_000_003 + first)
        low, high = ANSWER_TEMPERATURES
        warmth = (low + (high - low) * torch.rand(count, generator=generator)).tolist()
        chance = np.random.default_rng((recipe.seed, first))
        opening = self._dialogue.opening
        rows = [_Row(warmth[i] if i % 2 else 0.0) for i in range(count)]
        for row in rows:
            self._ask(row, opening, chance)
        ids = np.empty((count, recipe.row_tokens), np.int32)
        hidden = torch.empty(
            (count, recipe.row_tokens, self._model.config.hidden_size), dtype=torch.bfloat16
        )
        drawn = [0] * count
        for position in range(recipe.row_tokens):
            tokens = [self._next(row, drawn[i], chance) for i, row in enumerate(rows)]
            ids[:, position] = tokens
            result = self._model.forward(_column(tokens, position), self._kv)
            hidden[:, position] = result.hidden.to(torch.bfloat16)
            if position + 1 >= len(opening):
                logits = result.logits
                drawn = _draw(logits, rows, generator, openings=recipe.openings).tolist()
        return ids, np.array([row.roles for row in rows], np.uint8), hidden

    def _ask(self, row: _Row, opening: Sequence[int], chance: np.random.Generator) -> None:
        """A user's turn, behind the template's `opening` of it."""
        row.forced, row.role, row.said = list(opening), USER, 0
        row.asking = USER_TEMPERATURE
        if self._recipe.documentation and 100 * chance.random() < self._recipe.documentation:
            begun = self._beginnings[int(chance.integers(len(self._beginnings)))]
            row.forced += begun
            row.said, row.asking = len(begun), BEGUN_TEMPERATURE

    def _next(self, row: _Row, drawn: int, chance: np.random.Generator) -> int:
        """The row's next token: what the template says, else what the model said."""
        if not row.forced:
            end = self._dialogue.to_answer if row.role == USER else self._dialogue.to_user
            limit = self._recipe.user_tokens if row.role == USER else self._recipe.answer_tokens
            if drawn != end[0] and row.said < limit:
                row.said += 1
                row.roles.append(row.role)
                return drawn
            role = row.role
            if role == USER:
                row.forced, row.role, row.said = list(end), ANSWER, 0
            else:
                self._ask(row, end, chance)
            if drawn == end[0]:  # it ended its turn itself
                row.roles.append(role)
                return row.forced.pop(0)
        row.roles.append(FORCED)
        return row.forced.pop(0)


def _column(tokens: list[int], position: int) -> Batch:
    """One column of every row."""
    count = len(tokens)
    rows = tuple(RowSpan(slot=i, start=position, columns=1, offset=i) for i in range(count))
    where = torch.full((count,), position)
    return Batch(torch.tensor(tokens), where, rows, torch.arange(count))


def _draw(
    logits: torch.Tensor, rows: list[_Row], generator: torch.Generator, *, openings: int
) -> torch.Tensor:
    """int64 [rows]: by inversion, or the likeliest where a row answers greedily."""
    drawn = logits.argmax(-1)
    warm = [i for i, row in enumerate(rows) if row.role == USER or row.temperature]
    points = torch.rand(len(rows), generator=generator)[warm]
    if warm:
        asking = torch.tensor([rows[i].role == USER for i in warm])
        heat = [rows[i].asking if rows[i].role == USER else rows[i].temperature for i in warm]
        chances = (logits[warm] / torch.tensor(heat).unsqueeze(1)).softmax(-1)
        begins = [n for n, i in enumerate(warm) if rows[i].role == USER and not rows[i].said]
        likely = chances[begins].topk(min(openings, logits.shape[1])).indices
        floor = chances.amax(-1, keepdim=True) * USER_FLOOR * asking.unsqueeze(1)
        chances.masked_fill_(chances < floor, 0.0)
        if openings and begins:
            chances[begins] = _opened(chances[begins], likely)
        mass = chances.cumsum(-1)
        at = torch.searchsorted(mass, points.unsqueeze(1) * mass[:, -1:], right=True)
        drawn[warm] = at.squeeze(1).clamp_(max=logits.shape[1] - 1)
    return drawn


def _opened(own: torch.Tensor, likely: torch.Tensor) -> torch.Tensor:
    """The model's `own` chances of a question's first token, fp32 [n, vocabulary], with `OPENED` of
    them spread evenly over the `likely` ones, int64 [n, openings].

    Left to itself, the demo model begins two questions of three with "I" or "Can".
    """
    own = own * ((1 - OPENED) / own.sum(-1, keepdim=True))
    return own.scatter_add(1, likely, torch.full(likely.shape, OPENED / likely.shape[1]))
