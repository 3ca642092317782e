"""Clients that go on asking whatever happens, and hold each answer to the rules."""

import asyncio
import json
import random
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Literal

import aiohttp

ANSWER_S = 90.0  # far beyond every deadline of the server
REFUSALS = {429, 503, 504}
End = Literal["done", "error", "left", "broken", "no_connection"]
Manner = Literal["whole", "stream", "slow", "leave"]


@dataclass
class Outcome:
    """How one request ended for its client."""

    end: End
    manner: Manner
    request_id: str | None = None
    status: int | None = None
    fault: str | None = None  # the rule that it broke


@dataclass
class Clients:
    """`seed` decides what is asked; when it is answered is up to the machine."""

    url: str
    seed: int
    many: int = 5
    gateway_changes: int = 0  # counted by who kills it, before that and when it is back
    outcomes: list[Outcome] = field(default_factory=list)
    _stopping: bool = False
    _tasks: list["asyncio.Task[None]"] = field(default_factory=list)

    async def __aenter__(self) -> "Clients":
        self._http = aiohttp.ClientSession(
            timeout=aiohttp.ClientTimeout(total=ANSWER_S),
            connector=aiohttp.TCPConnector(limit=0, force_close=True),
        )
        self._tasks = [asyncio.create_task(self._go_on(n)) for n in range(self.many)]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._stopping = True
        await asyncio.gather(*self._tasks)
        await self._http.close()

    @property
    def faults(self) -> list[str]:
        return [outcome.fault for outcome in self.outcomes if outcome.fault is not None]

    def counts(self) -> Counter[str]:
        return Counter(outcome.end for outcome in self.outcomes)

    async def burst(self, many: int, rng: random.Random) -> None:
        """More at once than the server has rows and places in its queue."""
        await asyncio.gather(*(self._ask(rng, "whole", 60) for _ in range(many)))

    async def _go_on(self, number: int) -> None:
        rng = random.Random(f"{self.seed}-{number}")
        while not self._stopping:
            manner = rng.choice(("whole", "stream", "stream", "slow", "leave"))
            await self._ask(rng, manner, rng.choice((1, 20, 120, 400)))
            await asyncio.sleep(rng.random() * 0.05)

    async def _ask(self, rng: random.Random, manner: Manner, max_tokens: int) -> None:
        body = {**self._body(rng, max_tokens), "stream": manner != "whole"}
        headers = {"X-NInfer-Draft-Session": f"s{rng.randrange(3)}"} if rng.random() < 0.5 else {}
        changes = self.gateway_changes
        outcome = Outcome("broken", manner)
        try:
            await self._read(outcome, body, headers, rng)
        except (aiohttp.ClientConnectorError, aiohttp.ServerDisconnectedError):
            outcome.end = "no_connection"
        except (aiohttp.ClientError, ConnectionError):
            outcome.end = "broken"
        except TimeoutError:
            outcome.fault = f"{manner}: no answer within {ANSWER_S:.0f} s"
        was_there = changes == self.gateway_changes and changes % 2 == 0
        if outcome.end in ("broken", "no_connection") and was_there:
            # nothing but the gateway's death may break a connection
            outcome.fault = outcome.fault or f"{manner}: {outcome.end} without a dead gateway"
        if outcome.end == "no_connection":
            await asyncio.sleep(0.2)
        self.outcomes.append(outcome)

    def _body(self, rng: random.Random, max_tokens: int) -> dict[str, Any]:
        words = rng.choices(("copy", "this", "file", "again", "please", "now"), k=30)
        return {
            "messages": [{"role": "user", "content": " ".join(words)}],
            "max_tokens": max_tokens,
            "seed": rng.randrange(1000),
        }

    async def _read(
        self, outcome: Outcome, body: dict[str, Any], headers: dict[str, str], rng: random.Random
    ) -> None:
        async with self._http.post(self.url, json=body, headers=headers) as answer:
            outcome.status = answer.status
            outcome.request_id = answer.headers.get("X-Request-Id")
            if answer.status != 200 or not body["stream"]:
                self._judge_body(outcome, await answer.json())
                return
            text = b""
            async for piece in answer.content.iter_any():
                text += piece
                if outcome.manner == "slow":
                    await asyncio.sleep(rng.random() * 0.05)
                elif outcome.manner == "leave" and rng.random() < 0.3:
                    outcome.end = "left"
                    return
        self._judge_stream(outcome, text.decode())

    def _judge_body(self, outcome: Outcome, body: dict[str, Any]) -> None:
        if outcome.status == 200:
            outcome.end = "done"
            if body["choices"][0]["finish_reason"] not in ("stop", "length"):
                outcome.fault = f"an answer without an end: {body}"
            return
        outcome.end = "error"
        if outcome.status not in REFUSALS or not body["error"]["code"]:
            outcome.fault = f"status {outcome.status}: {body}"

    def _judge_stream(self, outcome: Outcome, text: str) -> None:
        lines = [line.removeprefix("data: ") for line in text.split("\n") if line[:5] == "data:"]
        events = [json.loads(line) for line in lines if line != "[DONE]"]
        errors = [event for event in events if "error" in event]
        terminals = lines.count("[DONE]") + len(errors)
        ends = [c["finish_reason"] for e in events for c in e.get("choices", ())]
        finished = sum(reason is not None for reason in ends)
        outcome.end = "error" if errors else "done"
        if terminals != 1 or finished != (0 if errors else 1):
            outcome.fault = f"{terminals} terminals, {finished} finish reasons: {text[-300:]}"
        elif lines[-1] != "[DONE]" and "error" not in json.loads(lines[-1]):
            outcome.fault = f"something follows the terminal: {text[-300:]}"
