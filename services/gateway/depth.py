"""How deep JSON from clients may be nested: what comes after it recurses once a level."""

from typing import Any

from shared.errors import BadParameter

MAX_DEPTH = 64
_SCALARS = (str, int, float, type(None))


def check_depth(value: Any, name: str, param: str) -> None:
    """Raises BadParameter: nested more than MAX_DEPTH levels."""
    level = [value]
    for _ in range(MAX_DEPTH):
        inner = [v.values() if isinstance(v, dict) else v for v in level]
        level = [x for items in inner if not isinstance(items, _SCALARS) for x in items]
        if not level:
            return
    raise BadParameter(f"{name} is nested deeper than {MAX_DEPTH} levels", param=param)
