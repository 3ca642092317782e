"""Chat templates: messages to prompt ids.

Templates come from the model folder and run in Jinja's immutable sandbox. Text that a client sent
never becomes a control token: where it contains a special token's text, that place is marked
before rendering, and only what stands outside the marks is parsed for specials.
"""

import json
import re
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

import jinja2
import numpy as np

from shared import sandbox
from shared.errors import BadParameter, CheckpointError
from shared.sandbox import TemplateSandbox
from shared.tokenizer import Tokenizer, read_settings, token_text

Message = dict[str, Any]

THINK = "<think>"

MAX_TEMPLATE_CHARACTERS = 1 << 20  # the largest published ones are around 20,000
# A template may not blow messages up without bound. A loop over tools repeats nothing today.
MAX_GROWTH_CHARACTERS = 1 << 20
MAX_GROWTH_FACTOR = 8


@dataclass(frozen=True)
class Abilities:
    """What a template can show, found by reading and by trying it once."""

    renders_tools: bool
    thinks: bool  # it knows <think>
    late_system: bool  # a system message that is not the first
    needs_user: bool  # refuses a history without a user
    raw_arguments: bool  # a call whose arguments are not an object


class Prompt(NamedTuple):
    ids: np.ndarray  # int32 [prompt_len]
    opens_thinking: bool  # the output starts inside <think>


class ChatTemplate:
    def __init__(self, source: str, tokenizer: Tokenizer, extra: dict[str, str]) -> None:
        environment = TemplateSandbox(
            trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
        )
        environment.filters["tojson"] = _to_json
        environment.globals["raise_exception"] = _raise_exception
        environment.globals["strftime_now"] = lambda form: datetime.now().strftime(form)
        environment.restrict_filters()
        self.source = source
        self._template = environment.from_string(source)
        self._tokenizer = tokenizer
        self._extra = extra
        longest_first = sorted(tokenizer.special_texts, key=len, reverse=True)
        # matches nothing if there are no special tokens
        self._specials = "|".join(re.escape(text) for text in longest_first) or r"(?!)"
        self._special = re.compile(self._specials)
        self.abilities = self._try_out(source)

    @classmethod
    def load(cls, model_dir: Path, tokenizer: Tokenizer) -> "ChatTemplate":
        """Raises CheckpointError: the folder has no usable chat template."""
        settings = read_settings(model_dir / "tokenizer_config.json")
        own = model_dir / "chat_template.jinja"
        try:
            source = own.read_text(encoding="utf-8") if own.is_file() else _default_of(settings)
        except (OSError, UnicodeDecodeError) as exc:
            raise CheckpointError(f"{own} cannot be read: {exc}") from exc
        if source is None:
            raise CheckpointError(f"{model_dir} has no chat template")
        if len(source) > MAX_TEMPLATE_CHARACTERS:
            raise CheckpointError(f"the chat template of {model_dir} is too large")
        texts = {name: token_text(settings.get(name)) for name in ("bos_token", "eos_token")}
        extra = {name: text for name, text in texts.items() if text is not None}
        try:
            return cls(source, tokenizer, extra)
        except jinja2.TemplateError as exc:
            raise CheckpointError(f"the chat template of {model_dir} is broken: {exc}") from exc

    def encode(
        self, messages: Sequence[Message], tools: Sequence[dict[str, Any]] = ()
    ) -> np.ndarray:
        """The ids of `prepare`."""
        return self.prepare(messages, tools).ids

    def prepare(
        self,
        messages: Sequence[Message],
        tools: Sequence[dict[str, Any]] = (),
        options: Mapping[str, Any] | None = None,
    ) -> Prompt:
        """A trailing assistant message is continued, not closed. `options` are template variables.

        Raises:
            BadParameter: the template refuses these messages; its own words are in the error.
        """
        nonce = secrets.token_hex(8)
        opening, closing = f"\ue000{nonce}\ue000", f"\ue001{nonce}\ue001"
        unsafe, given = False, 0

        def mark(text: str) -> str:
            nonlocal unsafe, given
            marked, count = self._special.subn(lambda m: f"{opening}{m[0]}{closing}", text)
            unsafe = unsafe or count > 0
            given += len(marked)
            return marked

        marked_messages = [_map_texts(message, mark) for message in messages]
        marked_tools = [_map_texts(tool, mark) for tool in tools]
        end_mark = f"\ue002{nonce}\ue002"
        room = MAX_GROWTH_CHARACTERS + MAX_GROWTH_FACTOR * given
        variables = {"tools": marked_tools or None, **(options or {})}
        rendered = self._render(marked_messages, variables, end_mark, room)
        opens_thinking = rendered.rstrip().endswith(THINK)
        if not unsafe:
            return Prompt(self._tokenizer.encode_prompt(rendered), opens_thinking)
        return Prompt(self._encode_marked(rendered, opening, closing), opens_thinking)

    def _try_out(self, source: str) -> Abilities:
        def takes(*messages: Message) -> bool:
            try:
                self._render(list(messages), {"tools": None}, "", MAX_GROWTH_CHARACTERS)
            except BadParameter:
                return False
            return True

        system: Message = {"role": "system", "content": "s"}
        user: Message = {"role": "user", "content": "u"}
        function = {"name": "f", "arguments": "a"}
        call = {"id": "c", "type": "function", "function": function}
        caller: Message = {"role": "assistant", "content": "", "tool_calls": [call]}
        return Abilities(
            renders_tools=re.search(r"\btools\b", source) is not None,
            thinks=THINK in source,
            late_system=takes(user, system, user),
            needs_user=takes(system, user) and not takes(system),
            raw_arguments=takes(user, caller, user),
        )

    def _render(
        self, messages: list[Message], variables: Mapping[str, Any], end_mark: str, room: int
    ) -> str:
        """At most `room` characters, however a template loops."""
        last = messages[-1]
        prefilled = last["role"] == "assistant" and not last.get("tool_calls")
        if prefilled:
            # not whitespace, so a template that trims contents keeps the prefill's own end
            messages = [*messages[:-1], {**last, "content": last["content"] + end_mark}]
        try:
            pieces = []
            with sandbox.budget():
                for piece in self._template.generate(
                    messages=messages,
                    add_generation_prompt=not prefilled,
                    **variables,
                    **self._extra,
                ):
                    room -= len(piece)
                    if room < 0:
                        raise jinja2.TemplateError("it writes too much")
                    pieces.append(piece)
        except Exception as exc:
            raise BadParameter(
                f"the chat template refuses these messages: {exc}",
                param="messages",
                logged="the chat template refuses these messages",
            ) from exc
        rendered = "".join(pieces)
        if not prefilled:
            return rendered
        text, mark, _ = rendered.rpartition(end_mark)
        if not mark:
            raise BadParameter(
                "the chat template cannot continue an assistant message", param="messages"
            )
        return text

    def _encode_marked(self, rendered: str, opening: str, closing: str) -> np.ndarray:
        """Encodes with special tokens parsed only outside the marks.

        The text between two parsed specials is encoded in one piece, as the tokenizer itself does.
        """
        parts: list[np.ndarray] = []
        plain: list[str] = []
        inside = False
        for piece in re.split(f"({opening}|{closing}|{self._specials})", rendered):
            if piece in (opening, closing):
                inside = piece == opening
            elif not inside and piece in self._tokenizer.special_texts:
                parts.append(self._tokenizer.encode_text("".join(plain)))
                parts.append(np.array([self._tokenizer.special_id(piece)], dtype=np.int32))
                plain = []
            else:
                plain.append(piece)
        parts.append(self._tokenizer.encode_text("".join(plain)))
        return np.concatenate(parts)


def _default_of(settings: dict[str, Any]) -> str | None:
    """The template in tokenizer_config.json: a string, or the default of several by name."""
    value = settings.get("chat_template")
    if isinstance(value, list):
        named = {t.get("name"): t.get("template") for t in value if isinstance(t, dict)}
        value = named.get("default")
    return value if isinstance(value, str) else None


def _map_texts(value: Any, change: Callable[[str], str]) -> Any:
    """The same structure with every string changed, keys too."""
    match value:
        case str():
            return change(value)
        case list():
            return [_map_texts(item, change) for item in value]
        case dict():
            return {change(key): _map_texts(item, change) for key, item in value.items()}
        case _:
            return value


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """As in transformers: without the HTML escapes of Jinja's own filter."""
    return json.dumps(
        value,
        ensure_ascii=ensure_ascii,
        indent=indent,
        separators=separators,
        sort_keys=sort_keys,
    )


def _raise_exception(message: str) -> None:
    raise jinja2.TemplateError(message)
