"""Command-line options from a frozen dataclass: one definition for parsing, --help and the docs.

A field is declared with `option(default, "what it does, with its unit")`; its flag is the field's
name with dashes. A field without a default is required. `group="Copies"` opens a section of --help
and of the docs' tables that lasts until a field opens another.
"""

import argparse
import dataclasses
import types
import typing
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import shtab

from shared.errors import ConfigError

Config = TypeVar("Config")


def option(default: Any = dataclasses.MISSING, help: str = "", **meta: Any) -> Any:
    """A dataclass field that is a flag. `group` opens a section; `choices` and `metavar` pass
    through to argparse."""
    return dataclasses.field(default=default, metadata={"help": help, **meta})


class _Parser(argparse.ArgumentParser):
    """argparse that raises one sentence instead of printing usage and exiting."""

    def error(self, message: str) -> NoReturn:
        raise ConfigError(f"{message} (see {self.prog} --help)")


def parse(
    kind: type[Config], argv: Sequence[str], *, prog: str, about: str = "", examples: str = ""
) -> Config:
    """Raises ConfigError on an unknown flag, a bad value or a missing required flag."""
    parser = parser_of(kind, prog=prog, about=about, examples=examples)
    known = [flag for action in parser._actions for flag in action.option_strings]
    for argument in argv:  # argparse would first complain about what is missing
        name = argument.partition("=")[0]
        if name.startswith("--") and name not in known:
            parser.error(f"unrecognized arguments: {argument}")
    values = vars(parser.parse_args(list(argv)))
    return kind(**{name: values[name] for name in flags(kind)})


def parser_of(
    kind: type, *, prog: str, about: str = "", examples: str = ""
) -> argparse.ArgumentParser:
    """The parser of a config's flags, in its sections, with `--print-completion`."""
    required = [
        f"{flags(kind)[field.name]} {_metavar(kind, field.name)}"
        for field in dataclasses.fields(kind)
        if field.default is dataclasses.MISSING
    ]
    parser = _Parser(
        prog=prog,
        usage=" ".join([prog, *required, "[options]"]),
        description=about,
        epilog=examples,
        allow_abbrev=False,
        formatter_class=_Formatter,
    )
    sections = {title: parser.add_argument_group(title) for title in groups(kind).values()}
    for name, title in groups(kind).items():
        sections[title].add_argument(flags(kind)[name], dest=name, **_argument(kind, name))
    return with_completion(parser)


def with_completion(parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
    """The finished parser with `--print-completion SHELL`, which prints the shell's script."""
    shtab.add_argument_to(
        parser, "--print-completion", help="print a shell's completion of this command, and exit"
    )
    _complete_paths(parser)
    return parser


def _complete_paths(parser: argparse.ArgumentParser) -> None:
    for action in parser._actions:
        if action.type is Path:
            action.complete = shtab.FILE  # type: ignore[attr-defined]
        elif isinstance(action, argparse._SubParsersAction):
            for command in action.choices.values():
                _complete_paths(command)


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


def groups(kind: type) -> dict[str, str]:
    """The section of each field, in the sections' order; the first section is "Options" if the
    first field opens none."""
    title = "Options"
    found: dict[str, str] = {}
    for field in dataclasses.fields(kind):
        title = field.metadata.get("group", title)
        found[field.name] = title
    order = list(dict.fromkeys(found.values()))
    return dict(sorted(found.items(), key=lambda item: order.index(item[1])))


def table(kind: type) -> str:
    """The options as a Markdown table, section by section."""
    fields = {field.name: field for field in dataclasses.fields(kind)}
    lines = ["| option | default | what it does |", "| --- | --- | --- |"]
    above = None
    for name, title in groups(kind).items():
        if title != above:
            lines.append(f"| **{title}** | | |")
            above = title
        field = fields[name]
        missing = field.default is dataclasses.MISSING
        default = "required" if missing else "off" if field.default is False else field.default
        shown = "" if default is None or default == "" else f"`{default}`"
        lines.append(f"| `{flags(kind)[name]}` | {shown} | {field.metadata['help']} |")
    return "\n".join(lines)


class _Formatter(argparse.RawDescriptionHelpFormatter):
    """The texts begin in one column, and examples stay as they are."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=32)


def _argument(kind: type, name: str) -> dict[str, Any]:
    field = next(f for f in dataclasses.fields(kind) if f.name == name)
    meta = dict(field.metadata)
    meta.pop("group", None)
    text = meta.pop("help").replace("%", "%%")
    hint = _type(kind, name)
    if hint is bool:
        return {"action": "store_true", "help": text}
    if "choices" not in meta:
        meta.setdefault("metavar", _metavar(kind, name))
    if field.default is dataclasses.MISSING:
        return {"type": hint, "required": True, "help": text, **meta}
    shown = "" if field.default in (None, "") else f" (default {field.default})"
    converters = {str: str, int: int, float: float, Path: Path}
    return {"type": converters[hint], "default": field.default, "help": text + shown, **meta}


def _type(kind: type, name: str) -> Any:
    hint = typing.get_type_hints(kind)[name]
    if isinstance(hint, types.UnionType):  # `int | None`: absent means None
        hint = next(arm for arm in typing.get_args(hint) if arm is not type(None))
    return hint


def _metavar(kind: type, name: str) -> str:
    """What --help shows for the value: its unit where the name ends in one."""
    if name.endswith("_s"):
        return "SECONDS"
    if name.endswith("_mib"):
        return "MIB"
    return {int: "N", float: "X", Path: "PATH"}.get(_type(kind, name), "TEXT")
