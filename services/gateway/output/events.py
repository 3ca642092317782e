"""What a model's output means, in the order in which it becomes certain."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from services.gateway.output.token_logprobs import TokenLogprob


@dataclass(frozen=True, slots=True)
class Reasoning:
    """A piece of the model's thinking."""

    text: str


@dataclass(frozen=True, slots=True)
class Content:
    """A piece of the answer's text."""

    text: str
    # of the tokens that ended since the last piece, where they were asked for
    logprobs: "tuple[TokenLogprob, ...]" = ()


@dataclass(frozen=True, slots=True)
class CallStart:
    """A tool call begins. Nothing else comes before its arguments and its end."""

    key: str  # unique over all conversations; protocols make their ids of it
    name: str


@dataclass(frozen=True, slots=True)
class CallArguments:
    """A piece of the JSON text of the open call's arguments, which is one object."""

    text: str


@dataclass(frozen=True, slots=True)
class CallEnd:
    """The JSON text is whole; `complete` is False if it was closed because the output was cut."""

    complete: bool


Event = Reasoning | Content | CallStart | CallArguments | CallEnd


def merged(events: Iterable[Event]) -> list[Event]:
    """Neighbouring pieces of one kind become one; empty pieces go."""
    result: list[Event] = []
    for event in events:
        if isinstance(event, Reasoning | Content | CallArguments):
            if not event.text:
                continue
            last = result[-1] if result else None
            if type(last) is type(event):
                result[-1] = _joined(last, event)
                continue
        result.append(event)
    return result


def _joined(first: Event, second: Event) -> Event:
    match first, second:
        case Content(), Content():
            return Content(first.text + second.text, (*first.logprobs, *second.logprobs))
        case Reasoning(), Reasoning():
            return Reasoning(first.text + second.text)
        case CallArguments(), CallArguments():
            return CallArguments(first.text + second.text)
        case _:
            raise AssertionError("only pieces of one kind are joined")
