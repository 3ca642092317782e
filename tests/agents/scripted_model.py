"""A model that reads its prompt and answers by script, for agents that call tools."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from shared.tokenizer import Tokenizer
from tests.agents.clients import Call
from tests.gateway.agents import CALL
from tests.scripted_engine import Script, Turn, hang, say_text

THOUGHT = "First things\nfirst."
SUMMARY = "The task was to raise a limit, and the file has been read."
TOOLS = "<tools>"
RESULT = "<tool_response>\n"
# how agents that show their tools when they compact ask for it
COMPACTS = ("create a detailed summary of the conversation", "CONTEXT CHECKPOINT COMPACTION")


@dataclass(frozen=True)
class Asked:
    """A request with what was answered."""

    prompt_ids: np.ndarray  # int32 [prompt_len]
    answer_ids: np.ndarray  # int32 [answer_len], without the end
    prompt: str
    cached_tokens: int  # the longest prefix that an earlier prompt with its answer has too


@dataclass
class ScriptedModel:
    """Answers a prompt with so many tool results by the step of that number.

    `task` tells the agent's own conversation from what it asks beside it, such as titles, which
    show no tools; those are answered with a summary. A conversation that holds the summary has
    been compacted, and gets the last step.
    """

    tokenizer: Tokenizer
    form: str  # of its calls
    task: str
    steps: Sequence[str] = ()
    hangs_at: int | None = None  # the step that begins and never ends
    on_step: Callable[[Turn], Awaitable[None]] | None = None  # before an own step is answered
    asked: list[Asked] = field(default_factory=list)
    beside: list[Asked] = field(default_factory=list)

    def calls(self, *calls: Call) -> str:
        """Their markup."""
        return "\n".join(CALL[self.form](call.name, call.arguments) for call in calls)

    async def __call__(self, turn: Turn) -> None:
        ids = turn.generate.prompt_ids
        prompt = self.tokenizer.decode_all(ids.tolist())
        is_compacted = SUMMARY in prompt
        is_own = (
            TOOLS in prompt
            and (self.task in prompt or is_compacted)
            and not any(words in prompt for words in COMPACTS)
        )
        step = len(self.steps) if is_compacted else prompt.count(RESULT)
        said = self.steps[min(step, len(self.steps) - 1)] if is_own else SUMMARY
        answer = f"{THOUGHT}\n</think>\n\n{said}" if prompt.endswith("<think>\n") else said
        answer_ids = self.tokenizer.encode_text(answer)
        turn.cached_tokens = max((shared_prefix(one, ids) for one in self._known()), default=0)
        asked = Asked(ids, answer_ids, prompt, turn.cached_tokens)
        (self.asked if is_own else self.beside).append(asked)
        if is_own and self.on_step is not None:
            await self.on_step(turn)
        if is_own and step == self.hangs_at:
            await turn.tokens(answer_ids[:4].tolist())
            await hang(turn)
        script: Script = say_text(self.tokenizer, answer, tokens=7)
        await script(turn)

    def _known(self) -> list[np.ndarray]:
        """What an engine would have kept of each request."""
        all_asked = [*self.asked, *self.beside]
        return [np.concatenate([one.prompt_ids, one.answer_ids]) for one in all_asked]


def shared_prefix(first: np.ndarray, second: np.ndarray) -> int:
    """How many tokens two texts have in common from their start."""
    length = min(len(first), len(second))
    differs = np.flatnonzero(first[:length] != second[:length])
    return int(differs[0]) if len(differs) else length
