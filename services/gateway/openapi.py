"""The OpenAPI document, made of the types that parse the bodies."""

from functools import cache
from typing import Any

import msgspec

from services.gateway.protocols.chat_body import ChatBody
from services.gateway.protocols.completions_body import CompletionsBody
from services.gateway.protocols.messages_body import MessagesBody
from services.gateway.protocols.responses_body import ResponsesBody
from services.gateway.tokens import DetokenizeBody, TokenizeBody

# path -> (the type of its body, what it is)
POSTS: dict[str, tuple[type[msgspec.Struct], str]] = {
    "/v1/chat/completions": (ChatBody, "OpenAI Chat Completions"),
    "/v1/responses": (ResponsesBody, "OpenAI Responses"),
    "/v1/responses/input_tokens": (ResponsesBody, "the prompt's tokens"),
    "/v1/messages": (MessagesBody, "Anthropic Messages"),
    "/v1/messages/count_tokens": (MessagesBody, "the prompt's tokens"),
    "/v1/completions": (CompletionsBody, "OpenAI Completions (legacy)"),
    "/tokenize": (TokenizeBody, "text or messages to token ids"),
    "/detokenize": (DetokenizeBody, "token ids to text"),
}
GETS = {
    "/health": "whether an engine serves",
    "/v1/models": "the model that is served",
    "/v1/models/{name}": "one model",
    "/v1/responses/{name}": "a stored response",
    "/v1/responses/{name}/input_items": "its conversation",
    "/openapi.json": "this document",
}
STREAMS = ("/v1/chat/completions", "/v1/responses", "/v1/messages", "/v1/completions")
ERRORS = {
    "400": "a field is wrong, or asks for what is not served",
    "401": "the key is missing or wrong",
    "403": "this host or page may not call",
    "404": "no such model, response or path",
    "405": "the path has other methods",
    "413": "the body is too large",
    "415": "the body is not plain JSON",
    "429": "too many requests are open",
    "500": "a fault of the server",
    "503": "no engine serves now",
    "504": "no row was free in time",
}


@cache
def document() -> dict[str, Any]:
    kinds = {kind for kind, _ in POSTS.values()}
    _, schemas = msgspec.json.schema_components(kinds, ref_template="#/components/schemas/{name}")
    paths: dict[str, Any] = {}
    for path, (kind, summary) in POSTS.items():
        schema = {"$ref": f"#/components/schemas/{kind.__name__}"}
        body = {"required": True, "content": {"application/json": {"schema": schema}}}
        answers = _answers(streams=path in STREAMS)
        paths[path] = {"post": {"summary": summary, "requestBody": body, "responses": answers}}
    for path, summary in GETS.items():
        operation: dict[str, Any] = {"summary": summary, "responses": _answers(streams=False)}
        if "{name}" in path:
            name = {"name": "name", "in": "path", "required": True, "schema": {"type": "string"}}
            operation["parameters"] = [name]
        paths[path] = {"get": operation}
    return {
        "openapi": "3.1.0",
        "info": {"title": "ninfer", "version": "0.1.0"},
        "paths": paths,
        "components": {"schemas": schemas},
    }


def _answers(*, streams: bool) -> dict[str, Any]:
    content: dict[str, Any] = {"application/json": {}}
    if streams:
        content["text/event-stream"] = {}
    answers: dict[str, Any] = {"200": {"description": "the answer", "content": content}}
    for status, description in ERRORS.items():
        answers[status] = {"description": description, "content": {"application/json": {}}}
    return answers
