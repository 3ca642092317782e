"""Command-line options from a frozen dataclass: one definition for parsing, --help and README.

A field is declared with `option(default, "what it does, with its unit")`; its flag is the field's
name with dashes. A field without a default is required.
"""

import argparse
import dataclasses
import types
import typing
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from shared.errors import ConfigError

Config = TypeVar("Config")


def option(default: Any = dataclasses.MISSING, help: str = "", **meta: Any) -> Any:
    """A dataclass field that is a flag. `choices` and `metavar` pass through to argparse."""
    return dataclasses.field(default=default, metadata={"help": help, **meta})


class _Parser(argparse.ArgumentParser):
    """argparse that raises one sentence instead of printing usage and exiting."""

    def error(self, message: str) -> NoReturn:
        raise ConfigError(f"{message} (see {self.prog} --help)")


def parse(kind: type[Config], argv: Sequence[str], *, prog: str, about: str = "") -> Config:
    """Raises ConfigError on an unknown flag, a bad value or a missing required flag."""
    parser = _Parser(prog=prog, description=about, allow_abbrev=False)
    for name, flag in flags(kind).items():
        parser.add_argument(flag, dest=name, **_argument(kind, name))
    for argument in argv:  # argparse would first complain about what is missing
        name = argument.partition("=")[0]
        if name.startswith("--") and name not in (*flags(kind).values(), "--help"):
            parser.error(f"unrecognized arguments: {argument}")
    return kind(**vars(parser.parse_args(list(argv))))


def render(config: Any) -> list[str]:
    """The argv that parses back into `config`; fields that are None or False leave no flag."""
    argv = []
    for name, flag in flags(type(config)).items():
        value = getattr(config, name)
        if value is True:
            argv.append(flag)
        elif value is not None and value is not False:
            argv.append(f"{flag}={value}")
    return argv


def select(kind: type[Config], wider: Any) -> Config:
    """The `kind` whose fields are taken from an object that has them all."""
    return kind(**{name: getattr(wider, name) for name in flags(kind)})


def flags(kind: type) -> dict[str, str]:
    return {f.name: "--" + f.name.replace("_", "-") for f in dataclasses.fields(kind)}


def table(kind: type) -> str:
    """The options as a Markdown table, for the README."""
    lines = ["| option | default | what it does |", "| --- | --- | --- |"]
    for field in dataclasses.fields(kind):
        missing = field.default is dataclasses.MISSING
        default = "required" if missing else "off" if field.default is False else field.default
        shown = "" if default is None else f"`{default}`"
        lines.append(f"| `{flags(kind)[field.name]}` | {shown} | {field.metadata['help']} |")
    return "\n".join(lines)


def _argument(kind: type, name: str) -> dict[str, Any]:
    field = next(f for f in dataclasses.fields(kind) if f.name == name)
    meta = dict(field.metadata)
    text = meta.pop("help").replace("%", "%%")
    hint = typing.get_type_hints(kind)[name]
    if isinstance(hint, types.UnionType):  # `int | None`: absent means None
        hint = next(arm for arm in typing.get_args(hint) if arm is not type(None))
    if hint is bool:
        return {"action": "store_true", "help": text}
    if field.default is dataclasses.MISSING:
        return {"type": hint, "required": True, "help": text, **meta}
    shown = "" if field.default is None else f" (default {field.default})"
    converters = {str: str, int: int, float: float, Path: Path}
    return {"type": converters[hint], "default": field.default, "help": text + shown, **meta}
