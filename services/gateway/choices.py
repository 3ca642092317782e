"""The choices of one request that asks for several: each a generation of its own."""

import asyncio
from collections.abc import Callable, Sequence
from typing import NamedTuple

from services.gateway.choices_log import ChoicesLog
from services.gateway.generation import Generation
from services.gateway.outcome import merged_stats
from services.gateway.output.events import Event
from services.gateway.request_log import GenerationLog, describe_error
from services.gateway.result import Result
from shared.errors import EngineDead


class Piece(NamedTuple):
    """What is new of one choice; its `result` is there once it has ended."""

    choice: int
    events: list[Event]
    result: Result | None


class Choices:
    """The first choice computes the prompt. The others start with its first token, and so find the
    prompt's KV in its slot: the engine knows nothing of choices, only of prefixes.

    They fail together: the first failure of any is the request's.
    """

    def __init__(
        self, make: Callable[[int, GenerationLog], Generation], count: int, log: GenerationLog
    ) -> None:
        """`make` gives the generation of one choice, which reports to that log."""
        self._log = ChoicesLog(log)
        self.each: Sequence[Generation] = [make(i, self._log.of(i)) for i in range(count)]
        self.each[0].on_first = self._start_others
        self._others_started = asyncio.Event()
        self._started = 0
        self._open = set(range(count))  # those whose end has not been handed out
        self._waits: dict[asyncio.Task[list[Event] | None], int] = {}

    def start(self) -> None:
        """Raises EngineDead."""
        self.each[0].start()
        self._started = 1

    @property
    def ended(self) -> bool:
        return not self._open

    @property
    def result(self) -> Result:
        """Of all together, only behind a normal end."""
        results = [generation.result for generation in self.each]
        first = results[0]
        return Result(
            reason=first.reason,
            stop=first.stop,
            stats=merged_stats([result.stats for result in results]),
            output_tokens=sum(result.output_tokens for result in results),
            reasoning_tokens=sum(result.reasoning_tokens for result in results),
            archive=first.archive,
        )

    async def next_events(self, within_s: float) -> list[Piece] | None:
        """What is new, at most one piece a choice; None if the time passed without anything.

        Raises:
            ServiceError, RequestError: the engine failed a choice or died.
        """
        for index in self._open - set(self._waits.values()):
            self._waits[asyncio.create_task(self._next_of(index))] = index
        done, _ = await asyncio.wait(
            self._waits, timeout=within_s, return_when=asyncio.FIRST_COMPLETED
        )
        came = sorted((self._waits.pop(task), task) for task in done)
        for error in [task.exception() for _, task in came]:  # looks at each, as asyncio wants
            if error is not None:
                raise error
        return [self._piece(index, task.result() or []) for index, task in came] or None

    async def abandon(self) -> None:
        """Cancels what is open, and has logged what was done."""
        for task in self._waits:
            task.cancel()
        await asyncio.gather(*self._waits, return_exceptions=True)
        self._waits.clear()
        for index in range(self._started, len(self.each)):
            self._log.drop(index)
        await asyncio.gather(*(generation.abandon() for generation in self.each[: self._started]))

    async def _next_of(self, index: int) -> list[Event] | None:
        if index:
            await self._others_started.wait()
        return await self.each[index].next_events(None)

    def _piece(self, index: int, events: list[Event]) -> Piece:
        generation = self.each[index]
        if not generation.ended:
            return Piece(index, events, None)
        if self._started == 1:
            self._start_others()  # it ended without a token
        self._open.discard(index)
        return Piece(index, events, generation.result)

    def _start_others(self) -> None:
        """Raises EngineDead."""
        for generation in self.each[self._started :]:
            try:
                generation.start()
            except EngineDead as error:
                generation.log.request_error(
                    generation.described, "generate", describe_error(error)
                )
                raise
            self._started += 1
        self._others_started.set()
