"""The one model that is served, as `/v1/models` shows it."""

import time
from datetime import UTC, datetime
from typing import Any

from aiohttp import web

from services.gateway.engine_link import EngineLink
from shared.errors import ModelNotFound


class Models:
    def __init__(self, model_id: str, link: EngineLink) -> None:
        self._model_id = model_id
        self._link = link
        self._started = int(time.time())

    async def list(self, http: web.Request) -> web.StreamResponse:
        if is_anthropic(http):
            fields = {"has_more": False, "first_id": self._model_id, "last_id": self._model_id}
            return web.json_response({"data": [self._anthropic_card()], **fields})
        return web.json_response({"object": "list", "data": [self._card()]})

    async def show(self, http: web.Request, name: str) -> web.StreamResponse:
        if name != self._model_id:
            raise ModelNotFound(
                f"The model '{name}' does not exist; this server has '{self._model_id}'",
                param="model",
            )
        return web.json_response(self._anthropic_card() if is_anthropic(http) else self._card())

    def _anthropic_card(self) -> dict[str, Any]:
        created = datetime.fromtimestamp(self._started, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        card = {"type": "model", "display_name": self._model_id, "created_at": created}
        card["lifecycle"] = "active"
        return {**self._card(), **card}

    def _card(self) -> dict[str, Any]:
        card: dict[str, Any] = {
            "id": self._model_id,
            "object": "model",
            "created": self._started,
            "owned_by": "ninfer",
        }
        if engine := self._link.ready:
            # what a request may really use, not what the model was trained for
            context = engine.model.max_context
            card |= {"max_model_len": context, "context_length": context}
            card["max_input_tokens"] = context
            card["meta"] = {
                "n_ctx": context,
                "n_params": engine.model.parameters,
                "size": engine.model.weight_bytes,
                "n_vocab": engine.model.vocab_size,
                "exact": engine.model.exact,
            }
        return card


def is_anthropic(http: web.Request) -> bool:
    """Its clients all send this header, and no other does."""
    return "anthropic-version" in http.headers
