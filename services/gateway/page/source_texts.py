"""The texts that a request could copy from, as far as the gateway knows them.

A draft names its source by kind and position. Where the tokens there are not the tokens that came
out, nothing is shown: the page may know less than the engine, but it never shows a wrong place.
"""

import threading
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import numpy as np

from services.gateway.page.token_text import text_with_offsets
from shared.matching.contexts import BOUNDARY
from shared.matching.derived_ids import DerivedIds, ShownTexts
from shared.messages import DraftKind, Tokens
from shared.tokenizer import Tokenizer


@dataclass
class SourceText:
    """Tokens in a row, without a boundary, and the places in them that were copied from."""

    kind: DraftKind
    ids: Tokens  # [n]
    edges: set[int] = field(default_factory=set)


class Copied(NamedTuple):
    """Tokens [start, stop) of the source with this index."""

    source: int
    start: int
    stop: int


class SourceTexts:
    """`sources[0]` is the prompt; others are there once something was copied from them."""

    def __init__(
        self,
        tokenizer: Tokenizer,
        prompt_ids: Tokens,
        output_ids: Tokens,
        *,
        shown: ShownTexts,
        predicted: str | None,
        max_context: int,
    ) -> None:
        self.sources = [SourceText("prompt", prompt_ids)]
        self._tokenizer = tokenizer
        self._output_ids = output_ids
        self._shown = shown
        self._predicted = predicted
        self._max_context = max_context
        self._found: dict[tuple[int, int], int] = {(id(prompt_ids), 0): 0}

    def find(self, kind: DraftKind, position: int, copied: Tokens) -> Copied | None:
        """Where these tokens stand, if they do."""
        for ids, offset in self._texts_of(kind):
            start = position - offset
            if not 0 <= start < len(ids):
                continue
            there = ids[start : start + len(copied)]
            # a text that repeats itself may have been continued past its end
            if np.array_equal(there, copied[: len(there)]):
                return self._mark(kind, ids, start, start + len(there))
        return None

    def texts(self) -> list[tuple[str, dict[int, int]]]:
        """Of each source its text, and where in it the edges are."""
        return [text_with_offsets(self._tokenizer, s.ids, s.edges) for s in self.sources]

    def _mark(self, kind: DraftKind, ids: Tokens, start: int, stop: int) -> Copied:
        """Of a text that holds several with boundaries between them, the one that is meant."""
        boundaries = np.flatnonzero(ids == BOUNDARY)
        i_next = int(np.searchsorted(boundaries, start))
        first = int(boundaries[i_next - 1]) + 1 if i_next else 0
        last = int(boundaries[i_next]) if i_next < len(boundaries) else len(ids)
        key = (id(ids), first)
        if key not in self._found:
            self._found[key] = len(self.sources)
            self.sources.append(SourceText(kind, ids[first:last]))
        source = self._found[key]
        found = Copied(source, start - first, min(stop, last) - first)
        self.sources[source].edges |= {found.start, found.stop}
        return found

    def _texts_of(self, kind: DraftKind) -> list[tuple[Tokens, int]]:
        """The texts of this kind, and at which position of the engine's index each begins."""
        prompt = self.sources[0].ids
        match kind:
            case "prompt" | "tool":
                return [(prompt, 0)]
            case "derived":
                return [(self._changed, len(prompt) + 1), (self._views, 0)]
            case "predicted":
                return [(self._predicted_ids, 0)]
            case "output":
                return [(self._output_ids, 0)]
            case _:  # the archive's texts are not here, and neural drafts have none
                return []

    @cached_property
    def _derived(self) -> DerivedIds:
        never = threading.Event()
        return DerivedIds(self._tokenizer, self._shown, self._max_context, never)

    @cached_property
    def _changed(self) -> Tokens:
        return self._derived.changed()

    @cached_property
    def _views(self) -> Tokens:
        return self._derived.views(len(self._changed))

    @cached_property
    def _predicted_ids(self) -> Tokens:
        return self._tokenizer.encode_text(self._predicted or "")[: self._max_context]
