"""Bodies to typed values, strictly: every refusal names its field."""

import json
import re
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import Meta

from shared.errors import BadParameter

Body = TypeVar("Body")

MAX_MESSAGES = 10_000
MAX_TOOLS = 1024
TOOL_NAME = re.compile(r"[\w.:/-]{1,128}", re.ASCII)
MAX_CHOICES = 16
MAX_STOPS = 16
MAX_STOP_CHARACTERS = 256

Count = Annotated[int, Meta(ge=1)]
ChoiceCount = Annotated[int, Meta(ge=1, le=MAX_CHOICES)]

TEMPLATE_OPTIONS = ("enable_thinking", "preserve_thinking", "reasoning_effort")


def decode(body: bytes, kind: type[Body]) -> Body:
    """Raises BadParameter: not JSON, a wrong type, or a number out of range."""
    try:
        return msgspec.json.decode(body, type=kind)
    except msgspec.ValidationError as exc:
        raise BadParameter(str(exc).replace("`$.", "`"), param=_blamed(str(exc))) from exc
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as exc:
        param = _non_finite_field(body)
        if param is not None:
            raise BadParameter(f"{param} holds a number that is not finite", param=param) from exc
        raise BadParameter(f"the body is not JSON: {exc}") from exc


def convert(value: Any, kind: type[Body], where: str) -> Body:
    """A part of a body, of a kind that only its neighbours tell. Raises BadParameter."""
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as exc:
        inner = _blamed(str(exc))
        message = re.sub(r" - at `\$\.?", f" - at `{where}.", str(exc)).replace(".`", "`")
        raise BadParameter(message, param=f"{where}.{inner}" if inner else where) from exc


def given(body: Any, names: tuple[str, ...]) -> dict[str, Any]:
    """Those of the fields that hold something."""
    chosen = {name: getattr(body, name) for name in names}
    return {name: value for name, value in chosen.items() if value is not None}


def check_tool_name(name: Any, param: str, names: set[str]) -> str:
    """Adds it to the others. Raises BadParameter: it is none, or stands among them already."""
    if not isinstance(name, str) or not TOOL_NAME.fullmatch(name):
        raise BadParameter(
            "a tool needs a name of 1 to 128 letters, digits or any of _-.:/", param=param
        )
    if name in names:
        raise BadParameter("two tools have this name", param=param)
    names.add(name)
    return name


def check_stops(stops: tuple[str, ...], param: str) -> tuple[str, ...]:
    """Raises BadParameter."""
    if len(stops) > MAX_STOPS or any(not 0 < len(s) <= MAX_STOP_CHARACTERS for s in stops):
        raise BadParameter(
            f"{param} takes up to {MAX_STOPS} strings of 1 to {MAX_STOP_CHARACTERS} characters",
            param=param,
        )
    return stops


def check_template_options(options: dict[str, Any] | None) -> dict[str, Any]:
    """What a request may tell the template. Raises BadParameter."""
    for name, value in (options or {}).items():
        if name not in TEMPLATE_OPTIONS:
            known = ", ".join(TEMPLATE_OPTIONS)
            raise BadParameter(
                f"'{name}' is no template option of this server; known are {known}",
                param="chat_template_kwargs",
            )
        where = f"chat_template_kwargs.{name}"
        kind = str if name == "reasoning_effort" else bool
        if not isinstance(value, kind):
            raise BadParameter(f"{where} must be a {kind.__name__}", param=where)
    return dict(options or {})


def _blamed(message: str) -> str | None:
    """The path of the field that msgspec complains about."""
    where = re.search(r" - at `\$\.?(.*?)`$", message)
    missing = re.search(r"missing required field `(\w+)`", message)
    path = [found.group(1) for found in (where, missing) if found]
    return ".".join(path) or None


def _non_finite_field(body: bytes) -> str | None:
    """The top-level field of a body that is JSON but for NaN or Infinity somewhere in it."""
    mark = object()

    def holds(value: Any) -> bool:
        if isinstance(value, dict | list):
            return any(map(holds, value.values() if isinstance(value, dict) else value))
        return value is mark

    try:
        fields = json.loads(body, parse_constant=lambda _: mark)
        if not isinstance(fields, dict):
            return None
        return next((name for name, value in fields.items() if holds(value)), None)
    except (ValueError, RecursionError):
        return None
