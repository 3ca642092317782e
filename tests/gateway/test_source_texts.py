"""The page's source texts against the arrays that the indexer really builds."""

import threading

import numpy as np
import pytest

from services.gateway.page.source_texts import SourceTexts
from services.indexer.builder import Builder
from shared.matching.derived_ids import ShownTexts
from shared.messages import BuildIndex, DraftKind, IndexedSource
from shared.tokenizer import Tokenizer

CONTEXT = 4_000
LISTINGS = (
    "1\timport os\n2\t\n3\tdef run():\n4\t    return os.getpid()\n",
    '{"output": "first line\\nsecond line\\nthird line\\n"}',
)
PREDICTED = "def run():\n    return 7\n"


@pytest.fixture
def built(tokenizer: Tokenizer) -> tuple[SourceTexts, list[IndexedSource], np.ndarray]:
    prompt = tokenizer.encode_text("Tool said:\n" + "".join(LISTINGS))
    message = BuildIndex(
        request_id="r", prompt_ids=prompt, tool_texts=LISTINGS, predicted=PREDICTED
    )
    ready = list(Builder(tokenizer, CONTEXT).build(message, threading.Event()))
    texts = SourceTexts(
        tokenizer,
        prompt,
        np.arange(5, dtype=np.int32),
        shown=ShownTexts(LISTINGS),
        predicted=PREDICTED,
        max_context=CONTEXT,
    )
    return texts, [source for index in ready for source in index.sources], prompt


@pytest.mark.parametrize(
    ("kind", "i_source"), [("tool", 0), ("derived", 0), ("predicted", 1), ("derived", 2)]
)
def test_every_place_that_an_engine_can_name_is_found(
    built: tuple[SourceTexts, list[IndexedSource], np.ndarray],
    kind: DraftKind,
    i_source: int,
) -> None:
    texts, sources, prompt = built
    tokens = sources[i_source].tokens
    first = len(prompt) + 1 if (kind, i_source) == ("derived", 0) else 0
    last = len(prompt) if kind == "tool" else len(tokens)
    checked = 0
    for position in range(first, last - 3):
        copied = tokens[position : position + 3]
        if (copied < 0).any():  # no copy crosses a boundary
            continue
        found = texts.find(kind, position, copied)
        assert found is not None
        assert texts.sources[found.source].ids[found.start : found.stop].tolist() == copied.tolist()
        checked += 1
    assert checked > 10


def test_a_rewritten_tool_result_is_shown_alone(
    built: tuple[SourceTexts, list[IndexedSource], np.ndarray], tokenizer: Tokenizer
) -> None:
    texts, sources, prompt = built
    position = len(prompt) + 1
    found = texts.find("derived", position, sources[0].tokens[position : position + 2])
    assert found is not None
    text, offsets = texts.texts()[found.source]
    assert text == "import os\n\ndef run():\n    return os.getpid()\n"
    assert offsets[found.start] == 0


def test_a_copy_that_went_on_past_the_end_lights_what_is_there(
    built: tuple[SourceTexts, list[IndexedSource], np.ndarray],
) -> None:
    texts, _, _ = built
    found = texts.find("output", 3, np.array([3, 4, 0, 1], np.int32))
    assert found is not None
    assert (found.start, found.stop) == (3, 5)
    assert texts.find("output", 2, np.array([2, 9], np.int32)) is None
