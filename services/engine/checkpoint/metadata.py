"""Typed access to a GGUF file's metadata: a missing or mistyped key is one sentence."""

import builtins
from typing import Any

from shared.errors import CheckpointError


class Metadata:
    """Keys that do not begin with `general.` or `tokenizer.` belong to the architecture."""

    def __init__(self, values: dict[str, Any]) -> None:
        self._values = values
        self.architecture = self.string("general.architecture")

    def __contains__(self, key: str) -> bool:
        return key in self._values

    def string(self, key: str) -> str:
        value: str = self._typed(key, str)
        return value

    def optional_string(self, key: str) -> str | None:
        return self.string(key) if key in self else None

    def int(self, key: str) -> int:
        value: builtins.int = self._typed(key, int)
        if isinstance(value, bool) or value < 0:
            raise CheckpointError(f"the GGUF key {key} is {value}, not a count")
        return value

    def optional_int(self, key: str) -> builtins.int | None:
        return self.int(key) if key in self else None

    def number(self, key: str) -> float:
        value: float = self._typed(key, float)
        return value

    def flag(self, key: str) -> bool:
        """An absent flag is off."""
        return self._typed(key, bool) if key in self else False

    def strings(self, key: str) -> list[str]:
        return self._list(key, str)

    def ints(self, key: str) -> list[builtins.int]:
        return self._list(key, int)

    def _list(self, key: str, kind: type) -> list[Any]:
        values: list[Any] = self._typed(key, list)
        if not all(isinstance(value, kind) for value in values):
            raise CheckpointError(f"the GGUF key {key} is not a list of {kind.__name__}")
        return values

    def _typed(self, key: str, kind: type) -> Any:
        if key not in self._values:
            raise CheckpointError(f"the GGUF file lacks the key {key}")
        value = self._values[key]
        if not isinstance(value, kind):
            shown = type(value).__name__
            raise CheckpointError(f"the GGUF key {key} is a {shown}, not a {kind.__name__}")
        return value
