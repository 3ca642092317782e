"""Chat templates: messages to prompt ids.

Templates come from the model folder and run in Jinja's immutable sandbox. Text that a message
holds never becomes a control token: where it contains a special token's text, the prompt is
rendered with marks around every content, and only what stands outside them is parsed for specials.
"""

import json
import re
import secrets
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import jinja2
import numpy as np
from jinja2.sandbox import ImmutableSandboxedEnvironment

from shared.errors import BadParameter, CheckpointError
from shared.tokenizer import Tokenizer

Message = dict[str, Any]


class ChatTemplate:
    def __init__(self, source: str, tokenizer: Tokenizer, extra: dict[str, str]) -> None:
        environment = ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
        )
        environment.filters["tojson"] = _to_json
        environment.globals["raise_exception"] = _raise_exception
        environment.globals["strftime_now"] = lambda form: datetime.now().strftime(form)
        self._template = environment.from_string(source)
        self._tokenizer = tokenizer
        self._extra = extra
        self.renders_tools = re.search(r"\btools\b", source) is not None

    @classmethod
    def load(cls, model_dir: Path, tokenizer: Tokenizer) -> "ChatTemplate":
        """Raises CheckpointError: the folder has no usable chat template."""
        settings: dict[str, Any] = {}
        path = model_dir / "tokenizer_config.json"
        if path.is_file():
            settings = json.loads(path.read_text(encoding="utf-8"))
        own = model_dir / "chat_template.jinja"
        source = own.read_text(encoding="utf-8") if own.is_file() else settings.get("chat_template")
        if not isinstance(source, str):
            raise CheckpointError(f"{model_dir} has no chat template")
        extra = {
            k: settings[k] for k in ("bos_token", "eos_token") if isinstance(settings.get(k), str)
        }
        try:
            return cls(source, tokenizer, extra)
        except jinja2.TemplateError as exc:
            raise CheckpointError(f"the chat template of {model_dir} is broken: {exc}") from exc

    def encode(
        self, messages: Sequence[Message], tools: Sequence[dict[str, Any]] = ()
    ) -> np.ndarray:
        """int32 [prompt_len]. A trailing assistant message is continued, not closed.

        Raises:
            BadParameter: the template refuses these messages; its own words are in the error.
        """
        unsafe = any(
            special in message["content"]
            for message in messages
            for special in self._tokenizer.special_texts
        )
        nonce = secrets.token_hex(8)
        opening, closing = (f"\ue000{nonce}\ue000", f"\ue001{nonce}\ue001") if unsafe else ("", "")
        rendered = self._render(messages, tools, (opening, closing), f"\ue002{nonce}\ue002")
        if not unsafe:
            return self._tokenizer.encode_prompt(rendered)
        return self._encode_marked(rendered, opening, closing)

    def _render(
        self,
        messages: Sequence[Message],
        tools: Sequence[dict[str, Any]],
        marks: tuple[str, str],
        end_mark: str,
    ) -> str:
        marked = [{**m, "content": f"{marks[0]}{m['content']}{marks[1]}"} for m in messages]
        prefilled = messages[-1]["role"] == "assistant"
        if prefilled:
            marked[-1]["content"] += end_mark
        try:
            rendered = self._template.render(
                messages=marked,
                tools=list(tools) or None,
                add_generation_prompt=not prefilled,
                **self._extra,
            )
        except (jinja2.TemplateError, TypeError, ValueError) as exc:
            raise BadParameter(
                f"the chat template refuses these messages: {exc}", param="messages"
            ) from exc
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
        specials = "|".join(
            re.escape(text) for text in sorted(self._tokenizer.special_texts, key=len, reverse=True)
        )
        parts: list[np.ndarray] = []
        plain = ""
        inside = False
        for piece in re.split(f"({opening}|{closing}|{specials})", rendered):
            if piece in (opening, closing):
                inside = piece == opening
            elif not inside and piece in self._tokenizer.special_texts:
                parts.append(self._tokenizer.encode_text(plain))
                parts.append(np.array([self._tokenizer.special_id(piece)], dtype=np.int32))
                plain = ""
            else:
                plain += piece
        parts.append(self._tokenizer.encode_text(plain))
        return np.concatenate(parts)


def _to_json(value: Any, indent: int | None = None) -> str:
    return json.dumps(value, ensure_ascii=False, indent=indent)


def _raise_exception(message: str) -> None:
    raise jinja2.TemplateError(message)
