"""`ninfer-explain`: why an answer was drafted as it was, round by round.

From a request's JSON body and its answer (`--body`, `--output`) it replays the drafting without a
model; from a running server (`--url`, `--request`) it shows what was really done.
"""

import asyncio
import json
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from services.engine.config import MAX_NGRAM_DRAFT_TOKENS
from services.engine.drafting.cost import RoundCost
from services.engine.drafting.router import DraftRouter
from services.engine.drafting.settings import DraftSettings
from services.engine.ledger import Ledger
from services.engine.tally import Tally
from services.explain_config import ExplainConfig, drafting, resolve
from services.explain_server import fetch
from services.gateway import sampling
from services.gateway.call_memory import CallMemory
from services.gateway.config import GatewayConfig
from services.gateway.conversation import Conversation
from services.gateway.draft_records import as_json
from services.gateway.draft_session import SessionNaming
from services.gateway.output.choice import tool_parser_of
from services.gateway.output_memory import OutputMemory
from services.gateway.planner import Planner
from services.gateway.protocols.chat import Chat
from services.gateway.protocols.completions import Completions
from services.gateway.protocols.messages import Messages
from services.gateway.protocols.protocol import ProtocolHandler
from services.gateway.protocols.responses import Responses
from services.gateway.protocols.responses_store import ResponseStore
from services.gateway.request import Request
from services.indexer.builder import Builder
from services.indexer.config import IndexerConfig, resolve_context
from shared import lifecycle, options
from shared.errors import ConfigError, NinferError
from shared.messages import BuildIndex, DraftRecord, IndexReady
from shared.template import ChatTemplate
from shared.tokenizer import Tokenizer

SHOWN_CHARACTERS = 44
REQUEST = "explained"
WHY = {
    "no_match": "nothing in the sources matches the last tokens",
    "not_worth": "the best match would cost more than it yields",
    "source_ends": "the matched source is about to end",
    "forbidden": "the request's grammar forbids the first token",
    "turned_off": "the request turned drafting off",
}


def explain(argv: Sequence[str]) -> None:
    config = resolve(
        options.parse(
            ExplainConfig, argv, prog="ninfer-explain", about=(__doc__ or "").split("\n", 1)[0]
        )
    )
    if config.request is not None:
        record = fetch(config.url, config.request, config.api_key)
        texts: list[str] = []
    else:
        record, texts = replay(config)
    if config.json:
        sys.stdout.write(json.dumps(record) + "\n")
    else:
        show(record["drafts"], texts)
        if (cost := record.get("column_cost")) is not None:
            Console().print(
                f"replayed with a column cost of {cost:g} (--column-cost); "
                "a server measures its own and may have drafted differently"
            )


def replay(config: ExplainConfig) -> tuple[dict[str, Any], list[str]]:
    """The record, and the text of each output token. Raises ConfigError: something is missing."""
    assert config.model is not None
    assert config.output is not None
    text = _read(config.output)
    if not text:
        raise ConfigError(f"--output {config.output} is empty; there is no answer to explain")
    tokenizer = Tokenizer.load(config.model)
    request = _parse(config)
    context = resolve_context(IndexerConfig(model=config.model, sockets=Path()))
    prompt_ids = _prompt_ids(config.model, tokenizer, request, context)
    output_ids = np.append(tokenizer.encode_text(text), tokenizer.stop_ids[:1]).astype(np.int32)
    shown = request.prompt if isinstance(request.prompt, Conversation) else Conversation(turns=())
    build = BuildIndex(
        request_id=REQUEST,
        prompt_ids=prompt_ids,
        tool_texts=shown.tool_texts,
        user_texts=shown.user_texts,
        call_arguments=shown.call_arguments,
        predicted=request.predicted,
    )
    parts = Builder(tokenizer, context).build(build, threading.Event())
    record = replay_drafts(_router(config, tokenizer), request, prompt_ids, output_ids, list(parts))
    passes = sum(1 if span.kind else span.stop - span.start for span in record.spans)
    explained = {
        "id": REQUEST,
        "object": "ninfer.request",
        "prompt_tokens": len(prompt_ids),
        "output_tokens": len(output_ids),
        "decode_passes": passes,
        # what the replay assumed, in passes of one column; the fixed policy asks for no cost
        "column_cost": config.column_cost if config.ngram_policy == "adaptive" else None,
        "drafts": as_json(record),
    }
    return explained, [tokenizer.decode([token_id]) for token_id in output_ids.tolist()]


def replay_drafts(
    router: DraftRouter,
    request: Request,
    prompt_ids: np.ndarray,
    output_ids: np.ndarray,
    parts: Sequence[IndexReady],
) -> DraftRecord:
    """Every round that would have led to `output_ids`, whose first token is the prefill's own."""
    ledger = Ledger(prompt_ids, len(output_ids))
    ledger.append(output_ids[:1].tolist())
    tally = Tally(0.0, MAX_NGRAM_DRAFT_TOKENS)
    wanted = request.wishes.speculation
    router.begin(REQUEST, expect_index=True, wanted=wanted, record=True)
    for part in parts:
        router.add_index(part)
    while ledger.output_len < len(output_ids):
        rest = output_ids[ledger.output_len :]
        room = len(rest) - 1
        router.begin_pass(1, 1)
        draft = router.propose(REQUEST, ledger, room, tally) if room else None
        drafts = np.array(draft.token_ids if draft else (), np.int32)
        differ = np.flatnonzero(drafts != rest[: len(drafts)])
        accepted = int(differ[0]) if len(differ) else len(drafts)
        ledger.append(rest[: accepted + 1].tolist())
        router.observe(REQUEST, ledger, draft, accepted)
    record = router.record_of(REQUEST)
    assert record is not None
    return record


def show(drafts: dict[str, Any], texts: Sequence[str]) -> None:
    if not drafts["spans"]:
        Console().print("no round is recorded: the answer had no room for a draft")
        return
    table = Table(box=None, header_style="bold")
    for name in ("output", "from", "at", "match", "drafted", "accepted"):
        table.add_column(name, justify="left" if name in ("output", "from") else "right")
    table.add_column("text, or why nothing" if texts else "why nothing", overflow="fold")
    for span in drafts["spans"]:
        start, stop = span["start"], span["stop"]
        said = "".join(texts[start:stop])
        if len(said) > SHOWN_CHARACTERS:
            said = f"{said[: SHOWN_CHARACTERS - 1]}…"
        why = WHY[span["declined"]] if span["declined"] else repr(said)[1:-1]
        kind = span["kind"] or "-"
        if span["neural"] and span["position"] is not None:
            kind = f"bridge to {kind}"
        cells = [span["position"], span["match_length"] or None, span["drafted"] or None]
        accepted = span["accepted"] if span["drafted"] else None
        numbers = ["" if cell is None else str(cell) for cell in (*cells, accepted)]
        table.add_row(f"{start}..{stop - 1}", kind, *numbers, why)
    Console().print(table)
    if drafts["dropped"]:
        Console().print(f"{drafts['dropped']} later rounds were not recorded")


def _parse(config: ExplainConfig) -> Request:
    assert config.body is not None
    raw = _read(config.body).encode()
    handlers: dict[str, ProtocolHandler] = {
        "chat": Chat(),
        "responses": Responses(ResponseStore(0)),
        "messages": Messages(),
        "completions": Completions(),
    }
    try:
        return handlers[config.protocol].parse(raw)
    except NinferError as exc:
        raise ConfigError(f"{config.body} is not a usable body: {exc.message}") from exc


def _prompt_ids(model: Path, tokenizer: Tokenizer, request: Request, context: int) -> np.ndarray:
    template = ChatTemplate.load(model, tokenizer)
    gateway = GatewayConfig(model=model, sockets=Path())
    planner = Planner(
        model_id=model.name,
        tokenizer=tokenizer,
        template=template,
        tool_parser=tool_parser_of("auto", template.source),
        sampling=sampling.defaults(gateway),
        default_max_tokens=gateway.default_max_tokens,
        queue_timeout_s=gateway.queue_timeout_s,
        sessions=SessionNaming(enabled=False, native=False, tokenizer=tokenizer),
        calls=CallMemory(),
        outputs=OutputMemory(tokenizer),
    )
    try:
        ids: np.ndarray = asyncio.run(planner.prompt_of(request, context)).ids
    except NinferError as exc:
        raise ConfigError(f"the body makes no prompt: {exc.message}") from exc
    return ids


def _router(config: ExplainConfig, tokenizer: Tokenizer) -> DraftRouter:
    limits = drafting(config)
    settings = DraftSettings(
        policy=limits.ngram_policy,
        width=limits.ngram_draft_tokens,
        min_match=limits.ngram_min_match,
        boundary_ids=tokenizer.special_ids,
        neural_width=limits.draft_tokens,
        lookup_ngram=limits.lookup_ngram,
    )
    return DraftRouter(settings, cost=RoundCost.linear(config.column_cost))


def _read(path: Path) -> str:
    """Raises ConfigError: the file cannot be read."""
    try:
        return sys.stdin.read() if str(path) == "-" else path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as exc:
        raise ConfigError(f"cannot read {path}: {exc}") from exc


def main() -> None:
    lifecycle.run(explain)


if __name__ == "__main__":
    main()
