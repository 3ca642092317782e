"""A coding conversation that is compacted half-way, replayed without a model.

25 turns. In the first half each reads a file (numbered) and writes it again with a few changes.
Then the history is compacted: the prompt holds a summary, no file. The second half writes the same
files once more, each with other changes. What is written is known, so a replay counts passes.
"""

import sysconfig
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from services.archive.archive import Archive, Part, Snapshot
from services.archive.store import ArchiveLimits
from services.engine.drafting.cost import RoundCost
from services.engine.drafting.router import DraftRouter
from services.engine.drafting.settings import DraftSettings
from services.engine.ledger import Ledger
from services.engine.session_indexes import SessionIndexes
from services.engine.tally import Tally
from services.gateway.prompt_parts import prompt_parts
from services.indexer.builder import Builder
from shared.matching.contexts import BOUNDARY
from shared.messages import BuildIndex, SpanKind
from shared.template import ChatTemplate
from shared.tokenizer import Tokenizer

MIB = 1 << 20
NAMES = "bisect calendar cmd colorsys contextlib copy fnmatch getopt heapq hmac netrc queue sched"
FILES = [f"{name}.py" for name in NAMES.split()]  # of the standard library
BEFORE = 12  # turns in which the prompt holds the files; 13 follow
OUTPUT_TOKENS = 1200
COLUMN_COST = 0.007
KEY = b"explicit:bench"
SYSTEM = {"role": "system", "content": "You edit files. Answer with the whole file."}


@dataclass(frozen=True)
class Turn:
    messages: list[dict[str, Any]]
    answer: str
    compacted: bool


@dataclass
class Half:
    tokens: int = 0
    passes: int = 0

    @property
    def tokens_per_pass(self) -> float:
        return self.tokens / self.passes


def turns() -> Iterator[Turn]:
    """Every fifteenth line differs from the version before, at other places each time."""
    library = Path(sysconfig.get_path("stdlib"))
    texts = {name: (library / name).read_text(encoding="utf-8") for name in FILES}
    history = [SYSTEM]
    for turn in range(BEFORE):
        name = FILES[turn]
        numbered = "\n".join(f"{n}\t{line}" for n, line in enumerate(texts[name].split("\n"), 1))
        texts[name] = edited(texts[name], turn)
        history += [
            {"role": "user", "content": f"Change {name} as discussed in point {turn}."},
            {"role": "tool", "content": numbered},
        ]
        yield Turn(list(history), texts[name], compacted=False)
        history.append({"role": "assistant", "content": texts[name]})
    for turn in range(BEFORE, 2 * BEFORE + 1):
        name = FILES[turn % BEFORE]
        texts[name] = edited(texts[name], turn)
        summary = f"So far these files were changed: {', '.join(FILES[:BEFORE])}."
        asked = f"Now apply point {turn} to {name}."
        messages = [SYSTEM, {"role": "user", "content": f"{summary}\n\n{asked}"}]
        yield Turn(messages, texts[name], compacted=True)


def edited(text: str, turn: int) -> str:
    lines = text.split("\n")
    for at in range(turn % 15, len(lines), 15):
        lines[at] += f"  # point {turn}"
    return "\n".join(lines)


class Replay:
    def __init__(self, model: Path, policy: Any, width: int) -> None:
        self._tokenizer = Tokenizer.load(model)
        self._template = ChatTemplate.load(model, self._tokenizer)
        self._builder = Builder(self._tokenizer, 1 << 20)
        self._settings = DraftSettings(
            policy=policy,
            width=width,
            min_match=12 if policy == "fixed" else 1,
            boundary_ids=self._tokenizer.special_ids,
        )

    def run(self, *, with_archive: bool) -> tuple[Half, Half]:
        """Before and after the compaction."""
        archive = Archive(ArchiveLimits(total_bytes=256 * MIB, session_bytes=128 * MIB))
        indexes = SessionIndexes(128 * MIB)
        spans: dict[bytes, np.ndarray] = {}
        halves = Half(), Half()
        for turn in turns():
            prompt_ids = self._template.encode(turn.messages)
            output_ids = self._tokenizer.encode_text(turn.answer)[:OUTPUT_TOKENS]
            router = self._router(turn, prompt_ids)
            if with_archive:
                snapshot = archive.bind("r", KEY, known=spans)
                assert isinstance(snapshot, Snapshot)
                archive.unpin(snapshot)
                spans |= {span.span_id: span.tokens for span in snapshot.missing}
                built = indexes.build(KEY, snapshot.span_ids, [spans[i] for i in snapshot.span_ids])
                router.add_sources("r", [("session", index) for index in built])
            passes = self._passes(router, prompt_ids, output_ids)
            if with_archive:
                archive.publish("r", self._parts(router, prompt_ids, output_ids))
            half = halves[turn.compacted]
            half.tokens += len(output_ids)
            half.passes += passes
        return halves

    def _router(self, turn: Turn, prompt_ids: np.ndarray) -> DraftRouter:
        router = DraftRouter(self._settings, cost=RoundCost.linear(COLUMN_COST))
        router.begin("r", expect_index=True)
        tool_texts = tuple(m["content"] for m in turn.messages if m["role"] == "tool")
        message = BuildIndex(
            request_id="r", prompt_ids=prompt_ids, tool_texts=tool_texts, predicted=None
        )
        for part in self._builder.build(message, threading.Event()):
            router.add_index(part)
        return router

    def _passes(self, router: DraftRouter, prompt_ids: np.ndarray, output_ids: np.ndarray) -> int:
        """The first token comes out of the prompt's pass, before anything is proposed."""
        ledger = Ledger(prompt_ids, len(output_ids))
        truth = output_ids.tolist()
        ledger.append(truth[:1])
        tally = Tally(0.0, self._settings.width)
        passes = 1
        while ledger.output_len < len(truth):
            router.begin_pass(1, 1)
            draft = router.propose("r", ledger, self._settings.width, tally)
            ahead = truth[ledger.output_len :]
            accepted = 0
            for drafted, true in zip(draft.token_ids if draft else (), ahead, strict=False):
                if drafted != true:
                    break
                accepted += 1
            ledger.append(ahead[: accepted + 1])
            router.observe("r", ledger, draft, accepted)
            passes += 1
        return passes

    def _parts(
        self, router: DraftRouter, prompt_ids: np.ndarray, output_ids: np.ndarray
    ) -> list[Part]:
        triples = prompt_parts(prompt_ids, self._tokenizer).reshape(-1, 3).tolist()
        own = np.where(np.isin(prompt_ids, list(self._tokenizer.special_ids)), BOUNDARY, prompt_ids)
        parts = [Part(own[start:stop], SpanKind(kind)) for start, stop, kind in triples]
        parts += [Part(tokens, SpanKind.TOOL) for tokens in router.tokens_of("r", "derived")]
        return [*parts, Part(output_ids, SpanKind.GENERATED)]
