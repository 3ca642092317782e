"""Fields that ask for what this server does not do, by protocol.

To ignore one would change what the caller gets without a word, so each is refused by name unless
it asks for nothing: null, something empty, or what is listed as its neutral value. Fields of other
servers stand here too, since their clients send them.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from services.gateway.protocols.decoding import decode
from shared.errors import BadParameter

# field -> values that ask for nothing
Neutral = Mapping[str, tuple[Any, ...]]

ONE_CHOICE: Neutral = {"n": (1,)}
EVERYWHERE: Neutral = {
    "best_of": (1,),
    "use_beam_search": (False,),
    "length_penalty": (1,),
    "early_stopping": (False,),
    "echo": (False,),
    "bad_words": (),
    "allowed_token_ids": (),
    "logits_processors": (),
    "prompt_logprobs": (),
    "truncate_prompt_tokens": (),
    "include_stop_str_in_output": (False,),
    "skip_special_tokens": (True,),
    "chat_template": (),  # templates come from the model's folder only
    "documents": (),
    # llama.cpp's samplers, with the values that turn them off
    "typical_p": (1,),
    "top_n_sigma": (-1,),
    "dynatemp_range": (0,),
    "dry_multiplier": (0,),
    "xtc_probability": (0,),
    "mirostat": (0,),
    "repeat_penalty": (1,),
    "samplers": (),
    "n_predict": (-1,),
    "n_probs": (0,),
    "lora": (),
    "grammar": (),  # in GBNF
    "json_schema": (),
}
GUIDED: Neutral = {
    "response_format": ({"type": "text"},),
    "structured_outputs": (),
    "guided_json": (),
    "guided_regex": (),
    "guided_choice": (),
    "guided_grammar": (),
}
CHAT: Neutral = {
    **EVERYWHERE,
    "audio": (),
    "modalities": (["text"],),
    "functions": (),
    "function_call": ("none", "auto"),  # of the functions, of which there are none
    "web_search_options": (),
    "max_output_tokens": (),
    "stop_sequences": (),
}
RESPONSES: Neutral = {
    **EVERYWHERE,
    **ONE_CHOICE,
    **GUIDED,
    "background": (False,),
    "conversation": (),
    "prompt": (),  # a template that OpenAI's servers hold
    "truncation": ("disabled",),
    "top_logprobs": (0,),
    "timings_per_token": (False,),
    "logprobs": (False,),
    "messages": (),
    "max_tokens": (),
    "max_completion_tokens": (),
    "reasoning_effort": (),
    "stop_sequences": (),
}
MESSAGES: Neutral = {
    **EVERYWHERE,
    **ONE_CHOICE,
    **GUIDED,
    "mcp_servers": (),
    "container": (),
    "logprobs": (False,),
    "top_logprobs": (0,),
    "timings_per_token": (False,),
    "max_completion_tokens": (),
    "reasoning_effort": (),
    "stop": (),
}
COMPLETIONS: Neutral = {
    **EVERYWHERE,
    "suffix": (),
    "logprobs": (False,),  # 0 asks for the logprobs of the tokens themselves
    "messages": (),
    "tools": (),
    "max_completion_tokens": (),
    "reasoning_effort": ("none",),
    "chat_template_kwargs": (),
}
# What does the same here.
INSTEAD = {
    ("chat", "functions"): "tools",
    ("chat", "function_call"): "tool_choice",
    ("chat", "max_output_tokens"): "max_completion_tokens",
    ("chat", "stop_sequences"): "stop",
    ("responses", "response_format"): "text.format",
    ("responses", "messages"): "input",
    ("responses", "max_tokens"): "max_output_tokens",
    ("responses", "max_completion_tokens"): "max_output_tokens",
    ("responses", "reasoning_effort"): "reasoning.effort",
    ("responses", "stop_sequences"): "stop",
    ("messages", "response_format"): "output_config.format",
    ("messages", "max_completion_tokens"): "max_tokens",
    ("messages", "reasoning_effort"): "output_config.effort",
    ("messages", "stop"): "stop_sequences",
    ("completions", "max_completion_tokens"): "max_tokens",
}


class Unserved:
    """The fields of one protocol, found in a body without decoding the rest of it."""

    def __init__(self, protocol: str, neutral: Neutral) -> None:
        self._protocol = protocol
        self._neutral = neutral
        fields = [(name, Any, None) for name in neutral]
        self._kind = msgspec.defstruct("UnservedFields", fields)

    def refuse(self, raw: bytes) -> None:
        """`raw` is a body that has been decoded already. Raises BadParameter for the first."""
        found = decode(raw, self._kind)
        for name, neutral in self._neutral.items():
            value = getattr(found, name)
            if _asks_for_nothing(value, neutral):
                continue
            message = f"{name} is not supported by this server"
            if instead := INSTEAD.get((self._protocol, name)):
                message = f"{message}; use {instead}"
            raise BadParameter(message, param=name)


def _asks_for_nothing(value: Any, neutral: tuple[Any, ...]) -> bool:
    if value is None or value in ("", [], {}):
        return True
    # true is no 1 here
    return any(value == v and isinstance(value, bool) == isinstance(v, bool) for v in neutral)
