"""One accepted request, from receipt to its terminal message."""

from dataclasses import dataclass

from services.engine.ledger import Ledger
from services.engine.planner import Progress
from services.engine.tally import Tally
from services.engine.target import Target
from shared.messages import FinishReason, Generate, ReuseEnd


@dataclass
class Request:
    # [0, computed)       KV is in the slot, readable by attention
    # [computed, target)  committed, not yet processed; the last of them is the anchor
    gateway: bytes  # whom to answer
    generate: Generate
    ledger: Ledger
    output_limit: int  # max_output_tokens, cut by the context
    limited_by: FinishReason  # what it means to reach output_limit: length or context
    tally: Tally
    target: Target
    computed: int = 0
    slot: int | None = None
    reused: int = 0  # prompt tokens whose KV was there at admission
    reused_from: str = "none"  # slot, running or host: where it was
    reuse_end: ReuseEnd = "unknown"

    @property
    def request_id(self) -> str:
        return self.generate.request_id

    @property
    def remaining(self) -> int:
        return self.output_limit - self.ledger.output_len

    def progress(self) -> Progress:
        return Progress(self.request_id, self.computed, len(self.ledger), self.remaining)

    def commit(self, token_ids: tuple[int, ...], accepted: int) -> tuple[tuple[int, ...], bool]:
        """Appends what a round yielded, up to a stop token or the output limit.

        The anchor and the accepted drafts have their KV in place; the last token, recovered or
        bonus, is the next anchor. Returns what was appended, and whether a stop token ended it.
        """
        anchor = len(self.ledger) - 1
        kept = token_ids[: self.remaining]
        stopped = False
        for i_token, token_id in enumerate(kept):
            if token_id in self.generate.stop_ids:
                kept = kept[: i_token + 1]
                stopped = True
                break
        self.ledger.append(kept)
        self.target.observe(kept)
        self.computed = min(anchor + 1 + accepted, len(self.ledger) - 1)
        return kept, stopped
