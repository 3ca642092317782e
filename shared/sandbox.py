"""Jinja for templates that came with a model: they compute text, and cannot do anything else.

Jinja's own sandbox keeps them from Python's objects. Here each render also has a budget of steps,
which loops, calls and filters spend by how much they look at, and a bound on how large a text or
list may grow: a hostile template fails instead of taking the machine.
"""

import contextlib
import functools
import re
from collections.abc import Callable, Iterable, Iterator
from contextvars import ContextVar
from typing import Any

import jinja2
from jinja2 import nodes
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.visitor import NodeTransformer

MAX_STEPS = 2_000_000  # an agent's longest conversation takes some 100,000
CALL_STEPS = 8  # a macro's call takes that much longer than a loop's turn
MAX_LENGTH = 1 << 26  # characters or items of one value, more than any body holds
MAX_WIDTH = 10_000  # of padding

_steps: ContextVar[list[int]] = ContextVar("steps")
_wide = re.compile(r"\d{5,}|\*|\{[^}]*\{")
_PADDING = {"center", "ljust", "rjust", "zfill", "expandtabs", "indent", "format"}


class TemplateSandbox(ImmutableSandboxedEnvironment):
    intercepted_binops = frozenset(("*", "**", "+", "%"))

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        setattr(self, "concat", _joined)  # noqa: B010 a method to mypy, an attribute to Jinja
        self.globals["range"] = _range

    def restrict_filters(self) -> None:
        """Makes every filter spend steps; call when all are registered."""
        for name, function in self.filters.items():
            self.filters[name] = _costed(name, function)

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        if operator == "**":
            raise jinja2.TemplateError("powers are not computed")
        if operator == "%" and isinstance(left, str):
            _check_form(left)
        if operator == "*":
            _bound(_length(left) * right if isinstance(right, int) else 0)
            _bound(_length(right) * left if isinstance(left, int) else 0)
        if operator == "+":
            _bound(_length(left) + _length(right))
        _spend(1)
        return super().call_binop(context, operator, left, right)

    def call(self, context: Context, function: Any, /, *args: Any, **kwargs: Any) -> Any:
        owner = getattr(function, "__self__", None)
        name = getattr(function, "__name__", "")
        _spend(CALL_STEPS + _length(owner) // 64)
        if isinstance(owner, str) and name in _PADDING:
            _check_padding(name, owner, (*args, *kwargs.values()))
        return super().call(context, function, *args, **kwargs)

    def wrap_str_format(self, value: Any) -> Callable[..., str] | None:
        wrapper = super().wrap_str_format(value)
        if wrapper is not None:
            _check_form(value.__self__)
        return wrapper

    def counted(self, items: Iterable[Any]) -> Iterator[Any]:
        for item in items:
            _spend(1)
            yield item

    def concatenated(self, *parts: Any) -> str:
        return _joined(map(str, parts))

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        tree: nodes.Template = _Counter().visit(super()._parse(source, name, filename))
        return tree


@contextlib.contextmanager
def budget(steps: int = MAX_STEPS) -> Iterator[None]:
    """Inside it, templates may render in this thread."""
    token = _steps.set([steps])
    try:
        yield
    finally:
        _steps.reset(token)


class _Counter(NodeTransformer):
    """Loops take their items from a counter; `~` becomes a call that looks at lengths."""

    def visit_For(self, node: nodes.For) -> nodes.Node:
        self.generic_visit(node)
        node.iter = _call_of("counted", [node.iter], node.lineno)
        return node

    def visit_Concat(self, node: nodes.Concat) -> nodes.Node:
        self.generic_visit(node)
        return _call_of("concatenated", node.nodes, node.lineno)


def _call_of(name: str, args: list[Any], lineno: int) -> nodes.Call:
    function = nodes.EnvironmentAttribute(name, lineno=lineno)
    return nodes.Call(function, args, [], None, None, lineno=lineno)


def _spend(steps: int) -> None:
    left = _steps.get()
    left[0] -= steps
    if left[0] < 0:
        raise jinja2.TemplateError("it takes too many steps")


def _bound(length: int) -> None:
    if length > MAX_LENGTH:
        raise jinja2.TemplateError("it writes too much")


def _length(value: Any) -> int:
    return len(value) if isinstance(value, str | list | tuple | dict) else 0


def _joined(parts: Iterable[str]) -> str:
    texts = list(parts)
    _bound(sum(map(len, texts)))
    _spend(1)
    return "".join(texts)


def _range(*args: int) -> range:
    items = range(*args)
    _spend(len(items))
    return items


def _costed(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def filtered(*args: Any, **kwargs: Any) -> Any:
        _spend(1 + sum(map(_length, args)) // 16)
        if name in _PADDING:
            _check_padding(name, "", (*args, *kwargs.values()))
        return function(*args, **kwargs)

    return filtered


def _check_form(form: str) -> None:
    """A form that could ask for a wide field, by digits or by another field."""
    if _wide.search(form):
        raise jinja2.TemplateError("it writes too much")


def _check_padding(name: str, owner: str, args: tuple[Any, ...]) -> None:
    if name == "format":
        _check_form(owner or str(args[0]))
    if any(isinstance(arg, int) and arg > MAX_WIDTH for arg in args):
        raise jinja2.TemplateError("it writes too much")
