"""One request between the client's body and the engine's terminal message."""

import asyncio
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

from services.gateway.engine_link import EngineLink, Reply
from services.gateway.indexer_link import IndexerLink
from services.gateway.output_text import OutputText
from services.gateway.request_log import RequestLog
from shared.errors import EngineDead, NinferError, by_code
from shared.messages import BuildIndex, Cancel, Failed, Finished, Generate, OutputTokens, Stop

CANCEL_WAIT_S = 5.0  # for the terminal message of a cancelled request, which only the log wants

OPENAI_REASONS = {"stop": "stop", "length": "length", "context": "length", "cancelled": "stop"}


@dataclass
class Generation:
    """Yields the output's text; owns the request's registration until its terminal message."""

    link: EngineLink
    indexer: IndexerLink
    log: RequestLog
    generate: Generate
    index: BuildIndex | None
    output: OutputText
    described: dict[str, Any]  # the log's request object
    began_s: float
    prepared_s: float = 0.0
    first_text_s: float | None = None
    finished: Finished | None = None
    _queue: "asyncio.Queue[Reply]" = field(init=False)
    _ended: bool = field(init=False, default=False)

    async def start(self) -> None:
        """Raises EngineDead: there is no engine."""
        self.prepared_s = time.monotonic() - self.began_s
        self._queue = self.link.register(self.generate.request_id)
        try:
            await self.link.send(self.generate)
            if self.index is not None:
                await self.indexer.send(self.index)
        except NinferError:
            self._close()
            raise
        self.log.request_start(self.described)

    async def texts(self, heartbeat_s: float) -> AsyncIterator[str | None]:
        """Pieces of text; None after each `heartbeat_s` without one. Ends with `finished` set.

        Raises:
            ServiceError, RequestError: the engine failed the request or died.
        """
        stop_sent = False
        while True:
            try:
                reply = await asyncio.wait_for(self._queue.get(), heartbeat_s)
            except TimeoutError:
                yield None
                continue
            match reply:
                case OutputTokens(token_ids=token_ids):
                    text = self.output.push(token_ids.tolist())
                    if self.output.stopped and not stop_sent:
                        stop_sent = True
                        await self.link.send(
                            Stop(
                                request_id=self.generate.request_id,
                                output_tokens=self.output.tokens,
                            )
                        )
                    if text:
                        self._mark_text()
                        yield text
                case Finished():
                    self.finished = reply
                    if text := self.output.finish():
                        self._mark_text()
                        yield text
                    self._done(reply)
                    return
                case Failed(code=code, message=message):
                    self._fail(by_code(code, message))
                case EngineDead():
                    self._fail(reply)

    @property
    def finish_reason(self) -> str:
        assert self.finished is not None
        return "stop" if self.output.stopped else OPENAI_REASONS[self.finished.reason]

    @property
    def output_tokens(self) -> int:
        return self.output.tokens

    async def abandon(self) -> None:
        """The client is gone: cancels, unless the request has ended, and logs what was done."""
        if self._ended:
            return
        try:
            await self.link.send(Cancel(request_id=self.generate.request_id))
            async with asyncio.timeout(CANCEL_WAIT_S):
                while not isinstance(reply := await self._queue.get(), Finished):
                    if isinstance(reply, Failed | EngineDead):
                        raise EngineDead("no terminal message for a cancelled request")
            self._done(reply)
        except (TimeoutError, EngineDead) as exc:
            error = exc if isinstance(exc, NinferError) else EngineDead("the engine is silent")
            self._close()
            self.log.request_error(self.described, "cancel", describe_error(error))

    def _fail(self, error: NinferError) -> None:
        self._close()
        self.log.request_error(self.described, "generate", describe_error(error))
        raise error

    def _done(self, finished: Finished) -> None:
        self._close()
        reason = "stop_string" if self.output.stopped else finished.reason
        now_s = time.monotonic()
        first = self.first_text_s
        self.log.request_done(
            self.described,
            reason,
            finished.stats,
            {
                "prepare": self.prepared_s,
                "ttft": None if first is None else first - self.began_s,
                "total": now_s - self.began_s,
            },
        )

    def _mark_text(self) -> None:
        if self.first_text_s is None:
            self.first_text_s = time.monotonic()

    def _close(self) -> None:
        self._ended = True
        self.link.forget(self.generate.request_id)
        if self.index is not None:
            self.indexer.drop(self.generate.request_id)


def describe_error(error: NinferError) -> dict[str, Any]:
    """For the log: the code and the field, not the message, which may quote the client."""
    return {
        "status": error.status,
        "type": type(error).__name__,
        "code": error.code,
        "param": error.param,
    }
