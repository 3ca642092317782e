"""The last requests with their texts, for the page: in main memory only, and bounded.

The request log and `/v1/ninfer/requests` hold no text; these do, until newer ones push them out.
"""

import time
from array import array
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Any, Literal

from services.gateway.acceptance import acceptance
from services.gateway.request_log import describe_error
from shared.errors import NinferError
from shared.matching.derived_ids import ShownTexts
from shared.messages import BuildIndex, Finished, Generate, OutputTokens, Tokens

MAX_BYTES = 64 << 20  # of all texts and ids together
TOKEN_BYTES = 4
ROUND_BYTES = 100  # about what a round's two counts and its span take

State = Literal["running", "done", "failed"]


@dataclass
class RecentRequest:
    """One request from its start; what it says of drafts is only there once it is done."""

    number: int  # rises from one request to the next
    request_id: str
    described: dict[str, Any]  # the log's request object
    prompt_ids: Tokens  # [prompt_len]
    shown: ShownTexts
    predicted: str | None
    version: int
    created_unix_s: float = field(default_factory=time.time)
    state: State = "running"
    reason: str | None = None  # how it ended, or the code of its error
    output_ids: "array[int]" = field(default_factory=lambda: array("i"))
    rounds: list[tuple[int, int]] = field(default_factory=list)  # tokens, accepted drafts of them
    first_s: float | None = None  # when its first and its last token came, monotonic
    last_s: float = 0.0
    finished: Finished | None = None

    @property
    def held_bytes(self) -> int:
        texts = sum(len(text) for texts in self.shown for text in texts) + len(self.predicted or "")
        tokens = len(self.prompt_ids) + len(self.output_ids)
        return texts + TOKEN_BYTES * tokens + ROUND_BYTES * len(self.rounds)

    def summary(self) -> dict[str, Any]:
        """One line of the page's list: counts, no text."""
        decode_s = self.last_s - self.first_s if self.first_s is not None else 0.0
        # the first round is the prefill's
        passes = max(0, len(self.rounds) - 1)
        decoded = max(0, len(self.output_ids) - 1)
        return {
            "number": self.number,
            "id": self.request_id,
            "state": self.state,
            "reason": self.reason,
            "protocol": self.described.get("protocol"),
            "client": self.described.get("client"),
            "created": round(self.created_unix_s, 3),
            "prompt_tokens": len(self.prompt_ids),
            "output_tokens": len(self.output_ids),
            "passes": passes,
            "accepted": sum(accepted for _, accepted in self.rounds),
            "tokens_per_pass": round(decoded / passes, 2) if passes else None,
            "tokens_per_second": round(decoded / decode_s, 1) if decode_s else None,
        }

    def outcome(self) -> dict[str, Any]:
        """Of an end that the engine has counted."""
        if self.finished is None:
            return {}
        stats = self.finished.stats
        seconds = stats.timings
        return {
            "cached_tokens": stats.cached_tokens,
            "speculative": acceptance(stats.speculative),
            "seconds": {
                "queue": seconds.queue_s,
                "prefill": seconds.prefill_s,
                "decode": seconds.decode_s,
            },
        }


class RecentRequests:
    """The oldest makes room for the newest. `version` rises with every change."""

    def __init__(self, capacity: int, max_bytes: int = MAX_BYTES) -> None:
        self.capacity = capacity  # 0 keeps none
        self.version = 0
        self._max_bytes = max_bytes
        self._kept: OrderedDict[str, RecentRequest] = OrderedDict()
        self._number = 0
        self._bytes = 0

    def begin(
        self, described: dict[str, Any], generate: Generate, index: BuildIndex | None
    ) -> RecentRequest | None:
        """`index` says what the tool results and the prediction are; None if nothing is copied."""
        if not self.capacity:
            return None
        self._number += 1
        request = RecentRequest(
            number=self._number,
            request_id=generate.request_id,
            described=described,
            prompt_ids=generate.prompt_ids,
            shown=ShownTexts(index.tool_texts, index.user_texts, index.call_arguments)
            if index
            else ShownTexts(()),
            predicted=index.predicted if index else None,
            version=self._changed(),
        )
        self._kept[request.request_id] = request
        self._grow(request, request.held_bytes)
        return request

    def take(self, request: RecentRequest, message: OutputTokens, now_s: float) -> None:
        """The tokens of one round. A request that was pushed out is not followed any more."""
        if self._kept.get(request.request_id) is not request:
            return
        request.last_s = now_s
        if request.first_s is None:
            request.first_s = request.last_s
        request.output_ids.extend(message.token_ids)
        request.rounds.append((len(message.token_ids), message.copied))
        request.version = self._changed()
        self._grow(request, TOKEN_BYTES * len(message.token_ids) + ROUND_BYTES)

    def finish(self, request: RecentRequest, reason: str, finished: Finished) -> None:
        """A stop string may have cut off some of the tokens that came."""
        before = request.held_bytes
        del request.output_ids[finished.stats.output_tokens :]
        request.state, request.reason, request.finished = "done", reason, finished
        request.version = self._changed()
        self._grow(request, request.held_bytes - before)

    def fail(self, request: RecentRequest, error: NinferError) -> None:
        described = describe_error(error)
        request.state, request.reason = "failed", described["code"] or described["type"]
        request.version = self._changed()

    def get(self, request_id: str) -> RecentRequest | None:
        return self._kept.get(request_id)

    def since(self, version: int) -> list[RecentRequest]:
        """Those that have changed behind it, the oldest first."""
        return [request for request in self._kept.values() if request.version > version]

    @property
    def oldest(self) -> int:
        """The number of the oldest that is kept; those before it are gone."""
        return next((r.number for r in self._kept.values()), self._number + 1)

    def _changed(self) -> int:
        self.version += 1
        return self.version

    def _grow(self, request: RecentRequest, by: int) -> None:
        """One that is still running when it is pushed out goes on without being shown."""
        if self._kept.get(request.request_id) is not request:
            return
        self._bytes += by
        while self._kept and (len(self._kept) > self.capacity or self._bytes > self._max_bytes):
            _, gone = self._kept.popitem(last=False)
            self._bytes -= gone.held_bytes
            self.version += 1
