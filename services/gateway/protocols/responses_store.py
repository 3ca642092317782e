"""Responses that clients may come back to: in memory, bounded, the oldest go first."""

import threading
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any

import msgspec

MOST_RESPONSES = 1024


@dataclass(frozen=True)
class StoredResponse:
    response: dict[str, Any]
    input_items: list[dict[str, Any]]  # of the whole conversation up to this response

    @property
    def items(self) -> list[dict[str, Any]]:
        """What a next request continues."""
        return [*self.input_items, *self.response["output"]]


class ResponseStore:
    """Each response is counted with its whole conversation, although they share most of it: so
    the bound holds whichever of them go."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._bytes = 0
        self._lock = threading.Lock()  # bodies are parsed in threads
        self._stored: OrderedDict[str, tuple[StoredResponse, int]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._stored)

    @property
    def is_on(self) -> bool:
        return self._max_bytes > 0

    def put(self, stored: StoredResponse) -> None:
        size = len(msgspec.json.encode(stored.response)) + len(
            msgspec.json.encode(stored.input_items)
        )
        if size > self._max_bytes:
            return
        with self._lock:
            self._stored[stored.response["id"]] = (stored, size)
            self._bytes += size
            while self._bytes > self._max_bytes or len(self._stored) > MOST_RESPONSES:
                _, (_, freed) = self._stored.popitem(last=False)
                self._bytes -= freed

    def get(self, response_id: str) -> StoredResponse | None:
        with self._lock:
            found = self._stored.get(response_id)
            if found is None:
                return None
            self._stored.move_to_end(response_id)
            return found[0]

    def items_by_id(self) -> dict[Any, dict[str, Any]]:
        """The items of all stored conversations; the latest of those with one id."""
        with self._lock:
            stored = [found for found, _ in self._stored.values()]
        return {item["id"]: item for found in stored for item in found.items}

    def delete(self, response_id: str) -> bool:
        with self._lock:
            found = self._stored.pop(response_id, None)
            if found is not None:
                self._bytes -= found[1]
            return found is not None
