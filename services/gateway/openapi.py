"""The OpenAPI document, made of the types that parse the bodies."""

from collections.abc import Mapping
from functools import cache
from types import MappingProxyType
from typing import Any, NamedTuple

import msgspec

from services.gateway.protocols.chat_body import ChatBody
from services.gateway.protocols.completions_body import CompletionsBody
from services.gateway.protocols.messages_body import MessagesBody
from services.gateway.protocols.responses_body import ResponsesBody
from services.gateway.tokens import DetokenizeBody, TokenizeBody

JSON, SSE, TEXT = "application/json", "text/event-stream", "text/plain"
ERRORS = {
    "400": "a field is wrong, or asks for what is not served; or this is no HTTP",
    "401": "the key is missing or wrong",
    "403": "this host or page may not call",
    "404": "no such model, response, session or path",
    "405": "the path has other methods",
    "408": "the body did not arrive in time",
    "413": "the body is too large",
    "415": "the body is not plain JSON",
    "417": "an expectation other than 100-continue",
    "429": "too many requests are open",
    "431": "the request line or a header is too long",
    "500": "a fault of the server",
    "503": "no engine or archive serves now",
    "504": "no row was free in time",
}
OF_BODIES = ("408", "413", "415", "429", "504")  # of calls with a body alone


class Operation(NamedTuple):
    method: str
    path: str  # {...} stands for a name
    summary: str
    body: type[msgspec.Struct] | None = None
    query: Mapping[str, Any] = MappingProxyType({})  # name -> schema
    answers: tuple[str, ...] = (JSON,)  # content types


LISTING: dict[str, dict[str, Any]] = {
    "order": {"enum": ["asc", "desc"], "default": "desc"},
    "limit": {"type": "integer", "minimum": 1, "maximum": 100, "default": 20},
    "after": {"type": "string", "description": "the id of the item before the page"},
}
OPERATIONS = (
    Operation(
        "post", "/v1/chat/completions", "OpenAI Chat Completions", ChatBody, answers=(JSON, SSE)
    ),
    Operation("post", "/v1/responses", "OpenAI Responses", ResponsesBody, answers=(JSON, SSE)),
    Operation("post", "/v1/responses/input_tokens", "the prompt's tokens", ResponsesBody),
    Operation("post", "/v1/responses/compact", "always refused: clients compact by a request"),
    Operation("get", "/v1/responses/{id}", "a stored response"),
    Operation("delete", "/v1/responses/{id}", "forgets a stored response"),
    Operation("post", "/v1/responses/{id}/cancel", "refused: no response runs in the background"),
    Operation("get", "/v1/responses/{id}/input_items", "its conversation", query=LISTING),
    Operation("post", "/v1/messages", "Anthropic Messages", MessagesBody, answers=(JSON, SSE)),
    Operation("post", "/v1/messages/count_tokens", "the prompt's tokens", MessagesBody),
    Operation(
        "post",
        "/v1/completions",
        "OpenAI Completions (legacy)",
        CompletionsBody,
        answers=(JSON, SSE),
    ),
    Operation("post", "/tokenize", "text or messages to token ids", TokenizeBody),
    Operation("post", "/detokenize", "token ids to text", DetokenizeBody),
    Operation("get", "/v1/models", "the model that is served"),
    Operation("get", "/v1/models/{model}", "one model"),
    Operation("get", "/v1/ninfer/requests", "what the last requests drafted"),
    Operation("get", "/v1/ninfer/requests/{id}", "what one request drafted, and why"),
    Operation("get", "/v1/ninfer/requests/{id}/text", "one request's text by its sources"),
    Operation("get", "/v1/ninfer/live", "what the server does now", answers=(SSE,)),
    Operation("get", "/v1/ninfer/sessions", "the draft sessions"),
    Operation("delete", "/v1/ninfer/sessions", "forgets all draft sessions"),
    Operation("delete", "/v1/ninfer/sessions/{id}", "forgets one draft session"),
    Operation("get", "/health", "whether an engine serves"),
    Operation("get", "/metrics", "Prometheus metrics", answers=(TEXT,)),
    Operation("get", "/openapi.json", "this document"),
)


@cache
def document() -> dict[str, Any]:
    kinds = {operation.body for operation in OPERATIONS if operation.body is not None}
    _, schemas = msgspec.json.schema_components(kinds, ref_template="#/components/schemas/{name}")
    paths: dict[str, Any] = {}
    for operation in OPERATIONS:
        paths.setdefault(operation.path, {})[operation.method] = _described(operation)
    return {
        "openapi": "3.1.0",
        "info": {"title": "ninfer", "version": "0.1.0"},
        "paths": paths,
        "components": {"schemas": schemas},
    }


def _described(operation: Operation) -> dict[str, Any]:
    described: dict[str, Any] = {"summary": operation.summary, "responses": _answers(operation)}
    if operation.body is not None:
        schema = {"$ref": f"#/components/schemas/{operation.body.__name__}"}
        described["requestBody"] = {"required": True, "content": {JSON: {"schema": schema}}}
    parameters: list[Any] = [
        {"name": n, "in": "query", "schema": s} for n, s in operation.query.items()
    ]
    if "{" in operation.path:
        name = operation.path.partition("{")[2].partition("}")[0]
        place = {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
        parameters.append(place)
    if parameters:
        described["parameters"] = parameters
    return described


def _answers(operation: Operation) -> dict[str, Any]:
    content: dict[str, Any] = {kind: {} for kind in operation.answers}
    answers: dict[str, Any] = {"200": {"description": "the answer", "content": content}}
    for status, description in ERRORS.items():
        if operation.body is not None or status not in OF_BODIES:
            answers[status] = {"description": description, "content": {JSON: {}}}
    return answers
