"""One request between the client's body and the engine's terminal message."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, assert_never

import msgspec

from services.gateway.call_memory import CallListener
from services.gateway.draft_records import DraftRecords
from services.gateway.draft_session import NamedSession
from services.gateway.engine_link import EngineLink, Reply
from services.gateway.indexer_link import IndexerLink
from services.gateway.outcome import Outcome
from services.gateway.output.events import Event, merged
from services.gateway.output.output import Output
from services.gateway.output.token_logprobs import LogprobCollector
from services.gateway.output_memory import AnswerTokens
from services.gateway.page.recent import RecentRequest, RecentRequests
from services.gateway.request_log import GenerationLog, describe_error
from services.gateway.result import EndReason, Progress, Result
from services.gateway.token_gaps import TokenGaps
from shared.errors import EngineDead, NinferError, by_code
from shared.messages import (
    BuildIndex,
    Cancel,
    Failed,
    Finished,
    Generate,
    OutputTokens,
    Stop,
)

CANCEL_WAIT_S = 5.0  # for the terminal message of a cancelled request, which only the log wants

ROUNDS_A_WRITE = 16  # at most, so that one stream that lags cannot hold up the others


@dataclass
class Generation:
    """Gives the output's events; owns the request's registration until its terminal message."""

    link: EngineLink
    indexer: IndexerLink
    log: GenerationLog
    drafts: DraftRecords
    gaps: TokenGaps
    recent: RecentRequests
    generate: Generate
    index: BuildIndex | None
    output: Output
    described: dict[str, Any]  # the log's request object
    session: NamedSession
    calls: CallListener
    tokens: AnswerTokens
    began_s: float
    on_first: Callable[[], None] | None = None  # called with the first tokens; may raise
    ended: bool = False
    finished: Finished | None = None
    _prepared_s: float = 0.0
    _first_text_s: float | None = None
    _first_tokens_s: float | None = None
    _copied: int = 0
    _last_tokens_s: float | None = None
    _shown: RecentRequest | None = None  # on the page
    _queue: "asyncio.Queue[Reply]" = field(init=False)
    _kept: Reply | None = None  # taken from the queue, for the next turn
    _logprobs: LogprobCollector | None = field(init=False, default=None)

    def start(self) -> None:
        """Sends the request to the engine and, at the same moment, its prompt to the indexer.

        Raises:
            EngineDead: there is no engine.
        """
        self._prepared_s = time.monotonic() - self.began_s
        request_id = self.generate.request_id
        index = self.index
        if self.index is not None and not self.indexer.is_there:
            self.indexer.log_absence(request_id)
            self.index = None
        self.generate = msgspec.structs.replace(
            self.generate,
            expect_index=self.index is not None,
            record_drafts=self.drafts.capacity > 0 or self.recent.capacity > 0,
        )
        if self.generate.top_logprobs is not None:
            self._logprobs = LogprobCollector(self.output.tokenizer, self.generate.stop_ids)
        self._queue = self.link.register(request_id)
        try:
            self.link.send(self.generate)
        except EngineDead:
            self.ended = True
            self.link.forget(request_id)
            raise
        if self.index is not None:
            self.indexer.build(self.index)
        self.log.request_start(self.described)
        self._shown = self.recent.begin(self.described, self.generate, index)

    async def next_events(self, within_s: float | None) -> list[Event] | None:
        """The next events; none at an end without more; None if the time passed without one.

        Cancelling it loses nothing.

        Raises:
            ServiceError, RequestError: the engine failed the request or died.
        """
        events: list[Event] = []
        try:
            async with asyncio.timeout(within_s):
                while not events and not self.ended:
                    events = self._take(await self._receive())
        except TimeoutError:
            return None
        # More tokens that are here already go out in the same write: under load the writes get
        # fewer, not later. Only tokens, since an end or a failure comes behind what was written.
        for _ in range(ROUNDS_A_WRITE):
            if self.ended or self._queue.empty():
                break
            reply = self._queue.get_nowait()
            if not isinstance(reply, OutputTokens):
                self._kept = reply
                break
            events += self._take_tokens(reply)
        whole = merged(events)
        self.calls.hear(whole)
        return whole

    @property
    def result(self) -> Result:
        """Only behind a normal end."""
        assert self.finished is not None
        return Result(
            reason=self._reason(self.finished),
            stop=self.output.stop,
            stats=self.finished.stats,
            output_tokens=self.output.tokens,
            reasoning_tokens=self.output.reasoning_tokens,
            archive=self.session.stats(self.finished),
        )

    def progress(self) -> Progress:
        now_s = time.monotonic()
        first_s = now_s if self._first_tokens_s is None else self._first_tokens_s
        return Progress(
            prompt_tokens=len(self.generate.prompt_ids),
            output_tokens=self.output.tokens,
            copied_tokens=self._copied,
            first_s=first_s - self.began_s,
            since_first_s=now_s - first_s,
        )

    async def _receive(self) -> Reply:
        reply, self._kept = self._kept, None
        return await self._queue.get() if reply is None else reply

    async def abandon(self) -> None:
        """The client is gone: cancels, and logs what was done. Nothing to do after an end."""
        if self.ended:
            return
        self.link.send_if_there(Cancel(request_id=self.generate.request_id))
        try:
            async with asyncio.timeout(CANCEL_WAIT_S):
                while not isinstance(reply := await self._receive(), Finished):
                    if isinstance(reply, Failed | EngineDead):
                        raise EngineDead("no terminal message for a cancelled request")
        except (TimeoutError, EngineDead):
            self._close()
            error = EngineDead("the engine was gone or silent")
            self._log_error("cancel", error)
            return
        self._close()
        self._log_done(reply, "cancelled", reply.stats.output_tokens)

    def _take(self, reply: Reply) -> list[Event]:
        match reply:
            case OutputTokens():
                return self._take_tokens(reply)
            case Finished():
                return self._finish(reply)
            case Failed(code=code, message=message):
                raise self._failed(by_code(code, message))
            case EngineDead():
                raise self._failed(reply)
            case _:
                assert_never(reply)

    def _take_tokens(self, reply: OutputTokens) -> list[Event]:
        now_s = time.monotonic()
        if self._last_tokens_s is not None:
            self.gaps.add(now_s - self._last_tokens_s)
        self._last_tokens_s = now_s
        if self._shown is not None:
            self.recent.take(self._shown, reply, now_s)
        if self._first_tokens_s is None:
            self._first_tokens_s = now_s
            if self.on_first is not None:
                self.on_first()
        self._copied += reply.copied
        was_stopped = self.output.stop is not None
        reasoning = self.output.reasoning_tokens
        token_ids = reply.token_ids.tolist()
        self.tokens.add(token_ids)
        events = self.output.push(token_ids)
        if self._logprobs is not None:
            thought = self.output.reasoning_tokens - reasoning
            self._logprobs.add(reply, thought, self.output.places)
            events = self._logprobs.attach(events, self.output.certain)
        if self.output.stop is not None and not was_stopped:
            stop = Stop(request_id=self.generate.request_id, output_tokens=self.output.tokens)
            self.link.send_if_there(stop)  # if the engine is gone, its queue entry says so
        return self._mark(events)

    def _finish(self, finished: Finished) -> list[Event]:
        was_stopped = self.output.stop is not None
        events = self.output.finish()
        if self._logprobs is not None:
            events = self._logprobs.attach(events, self.output.certain)
        if finished.reason == "cancelled" and not was_stopped:
            # nobody here asked for it: the engine is shutting down
            raise self._failed(EngineDead("the engine stopped; it restarts by itself, try again"))
        self.finished = finished
        self.tokens.keep()
        self._close()
        self._mark(events)
        self._log_done(finished, self._reason(finished), self.output.tokens)
        return events

    def _reason(self, finished: Finished) -> EndReason:
        if self.output.stop is not None:
            return "stop_string"
        if finished.reason in ("length", "context"):
            return "length" if finished.reason == "length" else "context"
        return "tool_calls" if self.output.calls and not self.output.has_cut_call else "stop"

    def _failed(self, error: NinferError) -> NinferError:
        self._close()
        self._log_error("generate", error)
        return error

    def _log_error(self, phase: str, error: NinferError) -> None:
        self.log.request_error(self.described, phase, describe_error(error))
        if self._shown is not None:
            self.recent.fail(self._shown, error)

    def _log_done(self, finished: Finished, reason: str, completion_tokens: int) -> None:
        now_s = time.monotonic()
        first = self._first_text_s
        outcome = Outcome(
            reason=reason,
            stats=finished.stats,
            completion_tokens=completion_tokens,
            reasoning_tokens=self.output.reasoning_tokens,
            tool_calls=self.output.calls,
            timings={
                "prepare": self._prepared_s,
                "ttft": None if first is None else first - self.began_s,
                "total": now_s - self.began_s,
            },
            archive=self.session.logged(finished),
        )
        self.drafts.keep(self.generate.request_id, finished.stats, finished.drafts)
        if self._shown is not None:
            self.recent.finish(self._shown, reason, finished)
        self.log.request_done(self.described, outcome)

    def _mark(self, events: list[Event]) -> list[Event]:
        if events and self._first_text_s is None:
            self._first_text_s = time.monotonic()
        return events

    def _close(self) -> None:
        self.ended = True
        self.link.forget(self.generate.request_id)
        if self.index is not None:
            self.indexer.drop(self.generate.request_id)
