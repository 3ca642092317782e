"""Model folders whose templates show tools and thinking, as published models do.

The templates are written for these tests; they use the same Jinja and refuse the same things.
"""

import json
import shutil
from pathlib import Path
from typing import Any

# Qwen3.5 and later: XML calls, thinking opened by the prompt, strict about where messages stand.
QWEN = """\
{%- macro say(content) -%}
    {%- if content is string -%}{{- content -}}
    {%- elif content is none or content is undefined -%}{{- '' -}}
    {%- else -%}{{- raise_exception('Unexpected content type.') -}}{%- endif -%}
{%- endmacro -%}
{%- if not messages %}{{- raise_exception('No messages provided.') }}{%- endif %}
{%- if tools and tools is iterable and tools is not mapping %}
    {{- '<|im_start|>system\\n# Tools\\n\\n<tools>' }}
    {%- for tool in tools %}{{- '\\n' }}{{- tool | tojson }}{%- endfor %}
    {{- '\\n</tools>' }}
    {%- if messages[0].role == 'system' %}
        {%- set content = say(messages[0].content) | trim %}
        {%- if content %}{{- '\\n\\n' + content }}{%- endif %}
    {%- endif %}
    {{- '<|im_end|>\\n' }}
{%- elif messages[0].role == 'system' %}
    {{- '<|im_start|>system\\n' + say(messages[0].content) | trim + '<|im_end|>\\n' }}
{%- endif %}
{%- set ns = namespace(searching=true, last=messages | length - 1) %}
{%- for message in messages[::-1] %}
    {%- set index = (messages | length - 1) - loop.index0 %}
    {%- if ns.searching and message.role == 'user' %}
        {%- set content = say(message.content) | trim %}
        {%- set is_result = content.startswith('<tool_response>') %}
        {%- if not (is_result and content.endswith('</tool_response>')) %}
            {%- set ns.searching = false %}
            {%- set ns.last = index %}
        {%- endif %}
    {%- endif %}
{%- endfor %}
{%- if ns.searching %}{{- raise_exception('No user query found in messages.') }}{%- endif %}
{%- for message in messages %}
    {%- set content = say(message.content) | trim %}
    {%- if message.role == 'system' %}
        {%- if not loop.first %}
            {{- raise_exception('System message must be at the beginning.') }}
        {%- endif %}
    {%- elif message.role == 'user' %}
        {{- '<|im_start|>user\\n' + content + '<|im_end|>\\n' }}
    {%- elif message.role == 'assistant' %}
        {%- set thought = '' %}
        {%- if message.reasoning_content is string %}
            {%- set thought = message.reasoning_content | trim %}
        {%- endif %}
        {{- '<|im_start|>assistant\\n' }}
        {%- if loop.index0 > ns.last or (preserve_thinking is defined and preserve_thinking) %}
            {{- '<think>\\n' + thought + '\\n</think>\\n\\n' }}
        {%- endif %}
        {{- content }}
        {%- for tool_call in message.tool_calls or [] %}
            {%- set call = tool_call.function if tool_call.function is defined else tool_call %}
            {{- '\\n\\n' if loop.first and content else ('' if loop.first else '\\n') }}
            {{- '<tool_call>\\n<function=' + call.name + '>\\n' }}
            {%- for name, value in call.arguments | items %}
                {{- '<parameter=' + name + '>\\n' }}
                {%- if value is mapping or (value is sequence and value is not string) %}
                    {{- value | tojson | safe }}
                {%- else %}{{- value | string }}{%- endif %}
                {{- '\\n</parameter>\\n' }}
            {%- endfor %}
            {{- '</function>\\n</tool_call>' }}
        {%- endfor %}
        {{- '<|im_end|>\\n' }}
    {%- elif message.role == 'tool' %}
        {%- if loop.previtem and loop.previtem.role != 'tool' %}
            {{- '<|im_start|>user' }}
        {%- endif %}
        {{- '\\n<tool_response>\\n' + content + '\\n</tool_response>' }}
        {%- if loop.last or loop.nextitem.role != 'tool' %}{{- '<|im_end|>\\n' }}{%- endif %}
    {%- else %}
        {{- raise_exception('Unexpected message role.') }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}
        {{- '<think>\\n\\n</think>\\n\\n' }}
    {%- else %}{{- '<think>\\n' }}{%- endif %}
{%- endif %}
"""

# Qwen3 and Hermes: JSON calls, no thinking in the prompt, later system messages allowed.
HERMES = """\
{%- if tools %}
    {{- '<|im_start|>system\\n' }}
    {%- if messages[0].role == 'system' %}{{- messages[0].content + '\\n\\n' }}{%- endif %}
    {{- '<tools>' }}
    {%- for tool in tools %}{{- '\\n' ~ tool | tojson }}{%- endfor %}
    {{- '\\n</tools><|im_end|>\\n' }}
{%- elif messages[0].role == 'system' %}
    {{- '<|im_start|>system\\n' + messages[0].content + '<|im_end|>\\n' }}
{%- endif %}
{%- for message in messages %}
    {%- if message.content.startswith('!') %}{{- raise_exception('no shouting') }}{%- endif %}
    {%- if message.role == 'user' or (message.role == 'system' and not loop.first) %}
        {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}
    {%- elif message.role == 'assistant' %}
        {{- '<|im_start|>assistant\\n' + message.content }}
        {%- for call in message.tool_calls or [] %}
            {{- '\\n<tool_call>\\n{"name": "' + call.function.name + '", "arguments": ' }}
            {%- if call.function.arguments is string %}{{- call.function.arguments }}
            {%- else %}{{- call.function.arguments | tojson }}{%- endif %}
            {{- '}\\n</tool_call>' }}
        {%- endfor %}
        {{- '<|im_end|>\\n' }}
    {%- elif message.role == 'tool' %}
        {{- '<|im_start|>user\\n<tool_response>\\n' + message.content }}
        {{- '\\n</tool_response><|im_end|>\\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}
"""

TEMPLATES = {"qwen": QWEN, "hermes": HERMES}


def with_template(source: Path, target: Path, template: str) -> Path:
    """A folder with another folder's tokenizer and this template: enough for a gateway."""
    target.mkdir(parents=True, exist_ok=True)
    for name in ("tokenizer.json", "config.json", "generation_config.json"):
        if (source / name).is_file():
            shutil.copy(source / name, target / name)
    settings = json.loads((source / "tokenizer_config.json").read_text())
    settings.pop("chat_template", None)
    (target / "tokenizer_config.json").write_text(json.dumps(settings))
    (target / "chat_template.jinja").write_text(template, encoding="utf-8")
    return target


def function(name: str, **properties: Any) -> dict[str, Any]:
    """A tool as OpenAI's chats take it."""
    parameters = {"type": "object", "properties": properties}
    inner = {"name": name, "description": f"does {name}", "parameters": parameters}
    return {"type": "function", "function": inner}
