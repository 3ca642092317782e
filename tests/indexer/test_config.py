import json
from pathlib import Path

import pytest

from services.indexer.config import IndexerConfig, resolve_context
from shared.errors import ConfigError


def config(folder: Path, facts: object = None, *, max_context: int = 0) -> IndexerConfig:
    if facts is not None:
        (folder / "config.json").write_text(json.dumps(facts))
    return IndexerConfig(model=folder, sockets=folder, max_context=max_context)


def test_the_option_wins_over_the_model(tmp_path: Path) -> None:
    chosen = config(tmp_path, {"max_position_embeddings": 8192}, max_context=100)
    assert resolve_context(chosen) == 100


@pytest.mark.parametrize(
    "facts",
    [{"max_position_embeddings": 8192}, {"text_config": {"max_position_embeddings": 8192}}],
)
def test_without_the_option_the_model_says(tmp_path: Path, facts: object) -> None:
    assert resolve_context(config(tmp_path, facts)) == 8192


@pytest.mark.parametrize(
    ("facts", "max_context", "sentence"),
    [
        (None, 0, "cannot read"),
        ([1], 0, "cannot read"),
        ({}, 0, "set --max-context"),
        ({}, -1, "out of range"),
    ],
)
def test_a_context_that_nothing_tells_stops_the_start(
    tmp_path: Path, facts: object, max_context: int, sentence: str
) -> None:
    with pytest.raises(ConfigError, match=sentence):
        resolve_context(config(tmp_path, facts, max_context=max_context))
