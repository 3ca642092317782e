"""The model folders that tests run on."""

import os
from pathlib import Path

import pytest

from services.engine.checkpoint.describe import describe
from services.engine.checkpoint.fetch import default_folder
from services.engine.models.tiny import write_tiny
from shared.errors import CheckpointError


@pytest.fixture(scope="session")
def demo_model() -> Path:
    """The demo model's folder: $NINFER_TEST_MODEL, or where `ninfer-model fetch` puts it."""
    folder = Path(os.environ.get("NINFER_TEST_MODEL") or default_folder("smollm2-135m"))
    try:
        describe(folder)
    except CheckpointError as exc:
        pytest.fail(f"no usable demo model, run `make setup`: {exc}", pytrace=False)
    return folder


@pytest.fixture(scope="session")
def ngram_model(request: pytest.FixtureRequest) -> Path:
    """For tests of draft sessions: $NINFER_NGRAM_TEST_WEIGHTS, else the demo model's folder."""
    given = os.environ.get("NINFER_NGRAM_TEST_WEIGHTS")
    if not given:
        folder: Path = request.getfixturevalue("demo_model")
        return folder
    try:
        describe(Path(given))
    except CheckpointError as exc:
        pytest.fail(f"NINFER_NGRAM_TEST_WEIGHTS: {exc}", pytrace=False)
    return Path(given)


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A two-layer random llama with a byte-level tokenizer, made in a second."""
    folder = tmp_path_factory.mktemp("models") / "tiny"
    write_tiny(folder)
    return folder
