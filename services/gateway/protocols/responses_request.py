"""What a Responses body means, and what of it this server cannot do."""

import secrets
from dataclasses import replace
from typing import Any

import msgspec

from services.gateway.conversation import Conversation, Turn
from services.gateway.effort import template_options
from services.gateway.forced_calls import ForcedCalls
from services.gateway.protocols.decoding import check_stops, check_template_options, decode
from services.gateway.protocols.decoding_fields import sampling_of, stops_of, wishes_of
from services.gateway.protocols.responses_body import ResponsesBody
from services.gateway.protocols.responses_items import Turns
from services.gateway.protocols.responses_store import ResponseStore
from services.gateway.protocols.responses_tools import ToolSet
from services.gateway.protocols.structured import grammar_of_format
from services.gateway.protocols.tool_choice import forced_calls, shown_choice
from services.gateway.protocols.unserved import RESPONSES, Unserved
from services.gateway.request import Request
from shared.errors import BadParameter

_unserved = Unserved("responses", RESPONSES)
ID_PREFIXES = {
    "message": "msg",
    "reasoning": "rs",
    "function_call": "fc",
    "function_call_output": "fco",
    "custom_tool_call": "ctc",
    "custom_tool_call_output": "ctco",
}


class ResponsesInput(msgspec.Struct):
    """A body with all items of its conversation, those of previous responses first."""

    body: ResponsesBody
    items: list[dict[str, Any]]


def parse(raw: bytes, store: ResponseStore) -> Request:
    """Raises BadParameter, which names the field."""
    body = decode(raw, ResponsesBody)
    _unserved.refuse(raw)
    _check_choices(body, store)
    effort = body.reasoning.effort if body.reasoning else None
    items = _input_items(body, store)
    tools = ToolSet.read(body.tools or [])
    turns = Turns(tools)
    if body.instructions:
        turns.done.append(Turn("system", body.instructions))
    own_start = len(items) - _own_count(body)
    for index, item in enumerate(items):
        at = index - own_start
        turns.add(item, f"input[{at}]" if at >= 0 else "previous_response_id")
    conversation = Conversation(
        turns.finish(), () if body.tool_choice == "none" else tuple(tools.shown)
    )
    if not conversation.turns:
        raise BadParameter("input holds nothing that this model can see", param="input")
    return Request(
        body=ResponsesInput(body, items),
        prompt=conversation,
        prompt_param="input",
        described=_describe(body, conversation),
        model=body.model,
        stream=bool(body.stream),
        max_tokens=body.max_output_tokens,
        sampling=sampling_of(body),
        seed=body.seed,
        stops=check_stops(stops_of(body.stop), "stop"),
        wishes=wishes_of(
            body,
            effort=effort,
            forced_calls=_forced_calls(body, tools),
            grammar=grammar_of_format(body.text.format if body.text else None, "text.format"),
        ),
        template_options=template_options(effort)
        | check_template_options(body.chat_template_kwargs),
        client_metadata=body.client_metadata,
        metadata=body.metadata,
    )


def _forced_calls(body: ResponsesBody, tools: ToolSet) -> ForcedCalls | None:
    """Under the name that the model sees. Raises BadParameter."""
    forced = forced_calls(body.tool_choice, body.parallel_tool_calls)
    if forced is None or forced.name is None or not isinstance(body.tool_choice, dict):
        return forced
    namespace = body.tool_choice.get("namespace")
    given = namespace if isinstance(namespace, str) else None
    return replace(forced, name=tools.shown_name(given, forced.name))


def _input_items(body: ResponsesBody, store: ResponseStore) -> list[dict[str, Any]]:
    """All items in order, those of the previous responses first; each has an id.

    Raises:
        BadParameter: a previous response or an item that is not stored.
    """
    items: list[dict[str, Any]] = []
    if body.previous_response_id is not None:
        previous = store.get(body.previous_response_id)
        if previous is None:
            raise BadParameter(
                f"Previous response with id '{body.previous_response_id}' not found.",
                param="previous_response_id",
            )
        items += previous.items
    if isinstance(body.input, str):
        return [*items, _with_id({"type": "message", "role": "user", "content": body.input})]
    known: dict[Any, dict[str, Any]] | None = None  # made once for all references
    for index, item in enumerate(body.input):
        if _is_reference(item):
            known = store.items_by_id() if known is None else known
            item_id = item.get("id")
            found = known.get(item_id) if isinstance(item_id, str) else None
            if found is None:
                raise BadParameter("no such item is stored", param=f"input[{index}].id")
            item = found
        items.append(_with_id(item))
    return items


def _is_reference(item: dict[str, Any]) -> bool:
    """The type may be absent, as in the official client's own type."""
    return item.get("type") == "item_reference" or (
        item.get("type") is None and not item.keys() - {"id", "type"}
    )


def _own_count(body: ResponsesBody) -> int:
    return 1 if isinstance(body.input, str) else len(body.input)


def _with_id(item: dict[str, Any]) -> dict[str, Any]:
    if isinstance(item.get("id"), str):
        return item
    prefix = ID_PREFIXES.get(str(item.get("type", "message")), "item")
    return {**item, "id": f"{prefix}_{secrets.token_hex(12)}"}


def _check_choices(body: ResponsesBody, store: ResponseStore) -> None:
    """Refuses what this server does otherwise. Raises BadParameter."""
    if body.store and not store.is_on:
        raise BadParameter("this server stores no responses", param="store")


def _describe(body: ResponsesBody, conversation: Conversation) -> dict[str, Any]:
    turns = conversation.turns
    return {
        "stream": bool(body.stream),
        "message_count": len(turns),
        "tool_count": len(conversation.tools),
        "tool_choice": shown_choice(body.tool_choice),
        "has_tool_history": any(turn.calls or turn.role == "tool" for turn in turns),
        "has_prediction": False,
        "stop_count": len(stops_of(body.stop)),
    }
