"""Clients that ask for a bit of everything: the kinds of requests that a long day brings."""

import asyncio
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tests.faults.clients import Clients, Outcome

WORDS = ("def", "return", "self", "name", "value", "import", "class", "for", "in", "items")
SHAPE = {
    "type": "object",
    "properties": {"ok": {"type": "boolean"}, "n": {"enum": [1, 2, 3]}},
    "required": ["ok", "n"],
    "additionalProperties": False,
}
Body = dict[str, Any]


def _text(rng: random.Random, words: int) -> str:
    return " ".join(rng.choices(WORDS, k=words))


def _chat(content: str, max_tokens: int, **more: Any) -> Body:
    message = {"role": "user", "content": content}
    return {"messages": [message], "max_tokens": max_tokens, **more}


def _copied(rng: random.Random, tokens: int) -> Body:
    """Tokens that repeat, and a prediction to copy from."""
    line = _text(rng, 6)
    prediction = {"type": "content", "content": line}
    return _chat(f"{line}\n{line}\n{line}\n", tokens, temperature=0, prediction=prediction)


def _shared(rng: random.Random, tokens: int) -> Body:
    """One of a few long beginnings that others have too."""
    beginning = _text(random.Random(rng.randrange(4)), 60)
    return _chat(f"{beginning} {_text(rng, 3)}", tokens, temperature=0)


def _stopped(rng: random.Random, tokens: int) -> Body:
    return _chat(_text(rng, 8), tokens, stop=["a", "e", " "], temperature=1.0)


def _penalised(rng: random.Random, tokens: int) -> Body:
    more = {"presence_penalty": 0.5, "repetition_penalty": 1.1, "logprobs": True, "top_logprobs": 2}
    return _chat(_text(rng, 8), tokens, top_k=20, min_p=0.01, **more)


def _schema(rng: random.Random, _: int) -> Body:
    shape = {"type": "json_schema", "json_schema": {"name": "shape", "schema": SHAPE}}
    return _chat(_text(rng, 8), 60, response_format=shape, temperature=0)


def _narrow(rng: random.Random, tokens: int) -> Body:
    return _chat(_text(rng, 20), tokens, ninfer={"speculation": False})


def _too_long(rng: random.Random, tokens: int) -> Body:
    return _chat(_text(rng, 900), tokens)


KINDS: dict[str, tuple[int, Callable[[random.Random, int], Body]]] = {
    "copied": (4, _copied),
    "shared": (4, _shared),
    "stopped": (3, _stopped),
    "penalised": (2, _penalised),
    "schema": (2, _schema),
    "narrow": (1, _narrow),
    "too long": (1, _too_long),
}


@dataclass
class MixedClients(Clients):
    """The same rules as `Clients`; a prompt without room may be refused with 400 as well."""

    made: dict[str, int] = field(default_factory=lambda: dict.fromkeys(KINDS, 0))

    async def until(self, count: int, deadline_s: float) -> None:
        """Until so many requests have ended, with a crowd now and then.

        Raises:
            AssertionError: one broke a rule, or they have not ended in time.
        """
        rng, end_s = random.Random(f"{self.seed}-crowds"), time.monotonic() + deadline_s
        while len(self.outcomes) < count:
            await asyncio.sleep(2.0)
            await self.burst(12, rng)
            assert not self.faults, self.faults[:3]
            assert time.monotonic() < end_s, f"{len(self.outcomes)} of {count} requests ended"

    def _body(self, rng: random.Random, max_tokens: int) -> Body:
        weights = [weight for weight, _ in KINDS.values()]
        (kind,) = rng.choices(list(KINDS), weights)
        self.made[kind] += 1
        body = KINDS[kind][1](rng, min(max_tokens, 120))
        return {"seed": rng.randrange(1000), **body}

    def _judge_body(self, outcome: Outcome, body: dict[str, Any]) -> None:
        if outcome.status == 400 and body["error"]["code"] == "context_length_exceeded":
            outcome.end = "error"
            return
        super()._judge_body(outcome, body)
