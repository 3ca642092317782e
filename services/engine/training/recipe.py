"""What decides a trained drafter: same recipe, model and thread count, same weights."""

import dataclasses
import json
from dataclasses import dataclass
from pathlib import Path

from shared.errors import ConfigError
from shared.options import option


@dataclass(frozen=True)
class Recipe:
    seed: int = option(0, "of the written text, the batches and their order")
    rows: int = option(1280, "conversations that the model writes")
    row_tokens: int = option(320, "tokens of each, 64 to 4096")
    heldout: int = option(64, "rows kept back to measure acceptance")
    writing: int = option(128, "rows written at once")
    user_tokens: int = option(80, "longest question")
    openings: int = option(256, "likeliest first tokens that questions begin with; 0: as it likes")
    documentation: int = option(
        0, "percent of the questions that begin with a form and a thing of Python's documentation"
    )
    answer_tokens: int = option(192, "longest answer; small models loop beyond")
    epochs: int = option(7, "passes over the text")
    batch: int = option(2, "rows a step; many small steps learn more than few large ones")
    depths: int = option(3, "unrolled draft steps in the loss")
    shortlist: int = option(8192, "most frequent tokens that the drafter learns to propose")
    learning_rate: float = option(1e-3, "of AdamW at its height; cosine after 4 percent warm-up")

    def check(self) -> None:
        """Raises ConfigError: a value that could not work, in one sentence."""
        least = {"seed": 0, "learning_rate": 0, "row_tokens": 64, "heldout": 2, "shortlist": 16}
        least |= {"openings": 0, "documentation": 0}
        for field in dataclasses.fields(self):
            value, low = getattr(self, field.name), least.get(field.name, 1)
            if value < low:
                flag = "--" + field.name.replace("_", "-")
                raise ConfigError(f"{flag} {value} is too small; use at least {low}")
        if self.documentation > 100:
            raise ConfigError(f"--documentation {self.documentation} is more than 100 percent")
        if self.heldout + self.batch > self.rows:
            raise ConfigError(
                f"--rows {self.rows} leaves no batch of {self.batch} beside {self.heldout} held out"
            )

    @property
    def steps(self) -> int:
        return self.epochs * self.steps_an_epoch

    @property
    def steps_an_epoch(self) -> int:
        return (self.rows - self.heldout) // self.batch


def claim(work: Path, values: dict[str, object]) -> None:
    """Notes in the work folder what it is for; a second run must be for the same.

    Raises:
        ConfigError: the folder belongs to another recipe or model.
    """
    work.mkdir(parents=True, exist_ok=True)
    path = work / "recipe.json"
    text = json.dumps(values, indent=2, sort_keys=True) + "\n"
    if path.exists() and path.read_text() != text:
        raise ConfigError(f"{work} holds another run ({path}); choose a different --work folder")
    path.write_text(text)
