"""One request between the client's body and the engine's terminal message."""

import asyncio
import time
from dataclasses import dataclass, field
from typing import Any, assert_never

import msgspec

from services.gateway.engine_link import EngineLink, Reply
from services.gateway.indexer_link import IndexerLink
from services.gateway.output_text import OutputText
from services.gateway.request_log import RequestLog, describe_error
from shared.errors import EngineDead, NinferError, by_code
from shared.messages import BuildIndex, Cancel, Failed, Finished, Generate, OutputTokens, Stop

CANCEL_WAIT_S = 5.0  # for the terminal message of a cancelled request, which only the log wants

OPENAI_REASONS = {"stop": "stop", "length": "length", "context": "length"}


@dataclass
class Generation:
    """Gives the output's text; owns the request's registration until its terminal message."""

    link: EngineLink
    indexer: IndexerLink
    log: RequestLog
    generate: Generate
    index: BuildIndex | None
    output: OutputText
    described: dict[str, Any]  # the log's request object
    began_s: float
    ended: bool = False
    finished: Finished | None = None
    _prepared_s: float = 0.0
    _first_text_s: float | None = None
    _queue: "asyncio.Queue[Reply]" = field(init=False)

    def start(self) -> None:
        """Sends the request to the engine and, at the same moment, its prompt to the indexer.

        Raises:
            EngineDead: there is no engine.
        """
        self._prepared_s = time.monotonic() - self.began_s
        request_id = self.generate.request_id
        if self.index is not None and not self.indexer.is_there:
            self.indexer.log_absence(request_id)
            self.index = None
        self.generate = msgspec.structs.replace(self.generate, expect_index=self.index is not None)
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

    async def next_text(self, within_s: float) -> str | None:
        """The next piece of text; "" at an end without more; None if the time passed without one.

        Raises:
            ServiceError, RequestError: the engine failed the request or died.
        """
        text = ""
        try:
            async with asyncio.timeout(within_s):
                while not text and not self.ended:
                    text = self._take(await self._queue.get())
        except TimeoutError:
            return None
        return text

    @property
    def finish_reason(self) -> str:
        assert self.finished is not None
        return "stop" if self.output.stopped else OPENAI_REASONS[self.finished.reason]

    async def abandon(self) -> None:
        """The client is gone: cancels, and logs what was done. Nothing to do after an end."""
        if self.ended:
            return
        self.link.send_if_there(Cancel(request_id=self.generate.request_id))
        try:
            async with asyncio.timeout(CANCEL_WAIT_S):
                while not isinstance(reply := await self._queue.get(), Finished):
                    if isinstance(reply, Failed | EngineDead):
                        raise EngineDead("no terminal message for a cancelled request")
        except (TimeoutError, EngineDead):
            self._close()
            error = EngineDead("the engine was gone or silent")
            self.log.request_error(self.described, "cancel", describe_error(error))
            return
        self._close()
        self._log_done(reply, "cancelled", reply.stats.output_tokens)

    def _take(self, reply: Reply) -> str:
        match reply:
            case OutputTokens(token_ids=token_ids):
                return self._take_tokens(token_ids.tolist())
            case Finished():
                return self._finish(reply)
            case Failed(code=code, message=message):
                raise self._failed(by_code(code, message))
            case EngineDead():
                raise self._failed(reply)
            case _:
                assert_never(reply)

    def _take_tokens(self, token_ids: list[int]) -> str:
        was_stopped = self.output.stopped
        text = self.output.push(token_ids)
        if self.output.stopped and not was_stopped:
            stop = Stop(request_id=self.generate.request_id, output_tokens=self.output.tokens)
            self.link.send_if_there(stop)  # if the engine is gone, its queue entry says so
        return self._mark(text)

    def _finish(self, finished: Finished) -> str:
        text = self.output.finish()
        if finished.reason == "cancelled" and not self.output.stopped:
            # nobody here asked for it: the engine is shutting down
            raise self._failed(EngineDead("the engine stopped; it restarts by itself, try again"))
        self.finished = finished
        self._close()
        reason = "stop_string" if self.output.stopped else finished.reason
        self._mark(text)
        self._log_done(finished, reason, self.output.tokens)
        return text

    def _failed(self, error: NinferError) -> NinferError:
        self._close()
        self.log.request_error(self.described, "generate", describe_error(error))
        return error

    def _log_done(self, finished: Finished, reason: str, completion_tokens: int) -> None:
        now_s = time.monotonic()
        first = self._first_text_s
        timings = {
            "prepare": self._prepared_s,
            "ttft": None if first is None else first - self.began_s,
            "total": now_s - self.began_s,
        }
        self.log.request_done(self.described, reason, finished.stats, completion_tokens, timings)

    def _mark(self, text: str) -> str:
        if text and self._first_text_s is None:
            self._first_text_s = time.monotonic()
        return text

    def _close(self) -> None:
        self.ended = True
        self.link.forget(self.generate.request_id)
        if self.index is not None:
            self.indexer.drop(self.generate.request_id)
