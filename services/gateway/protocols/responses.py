"""`POST /v1/responses`."""

from typing import Any

from services.gateway.protocols import responses_request
from services.gateway.protocols.openai_errors import error_body
from services.gateway.protocols.protocol import Head
from services.gateway.protocols.responses_reply import ResponsesReply
from services.gateway.protocols.responses_request import ResponsesInput
from services.gateway.protocols.responses_store import ResponseStore, StoredResponse
from services.gateway.request import Request


class Responses:
    name = "openai_responses"
    id_prefix = "resp_"
    error = staticmethod(error_body)

    def __init__(self, store: ResponseStore) -> None:
        self._store = store

    def parse(self, raw: bytes) -> Request:
        """Raises BadParameter, which names the field."""
        return responses_request.parse(raw, self._store)

    def reply(self, request: Request, head: Head) -> ResponsesReply:
        assert isinstance(request.body, ResponsesInput)
        body, items = request.body.body, request.body.items
        wants_store = self._store.is_on if body.store is None else body.store
        if not wants_store:
            return ResponsesReply(head, body, None)

        def keep(response: dict[str, Any]) -> None:
            self._store.put(StoredResponse(response, items))

        return ResponsesReply(head, body, keep)
