"""What the next pass computes. Pure: no torch, no clock, no socket.

There is no prefill or decode phase. Each request has `computed` (KV holds [0, computed)) and
`target` (committed tokens); a pass lets the first catch up with the second. A request whose
pending tokens are all in the pass yields logits, and if only its anchor was pending it may verify
drafts behind it.
"""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Progress:
    """One running request, in order of admission."""

    request_id: str
    computed: int
    target: int  # > computed: the anchor always awaits its pass
    remaining: int  # output tokens still allowed, >= 1


@dataclass(frozen=True)
class PlanLimits:
    prefill_chunk: int  # tokens of prompts in one pass, all rows together
    draft_width: int  # widest draft of any source
    max_context: int  # positions in a KV slot


@dataclass(frozen=True)
class RowPlan:
    request_id: str
    start: int  # position of the first column
    columns: int  # committed tokens to process, drafts not counted
    samples: bool  # the last of them is the anchor: its logits give the next token
    draft_room: int  # how many drafts may follow the anchor


def plan(requests: Sequence[Progress], limits: PlanLimits) -> tuple[RowPlan, ...]:
    """Every decoding row, then prompts in order of admission until the chunk is spent.

    A long prompt takes what is left of one chunk a pass, so running streams wait for at most one
    chunk between two tokens.
    """
    budget = limits.prefill_chunk
    rows = []
    for request in requests:
        pending = request.target - request.computed
        assert pending >= 1, f"{request.request_id} has nothing to compute"
        if pending == 1:
            rows.append(_row(request, 1, _draft_room(request, limits)))
        elif budget > 0:
            columns = min(pending, budget)
            budget -= columns
            rows.append(_row(request, columns, 0))
    return tuple(rows)


def _row(request: Progress, columns: int, draft_room: int) -> RowPlan:
    return RowPlan(
        request_id=request.request_id,
        start=request.computed,
        columns=columns,
        samples=request.computed + columns == request.target,
        draft_room=draft_room,
    )


def _draft_room(request: Progress, limits: PlanLimits) -> int:
    """With d drafts up to d + 1 tokens are committed, and they must fit budget and context.

    A request's first output token comes out of its prompt's pass, which has no drafts.
    """
    context = limits.max_context - request.target - 1
    return max(0, min(limits.draft_width, request.remaining - 1, context))
