"""The many ways in which a body asks for structured output; at most one of them."""

from services.gateway import grammars
from services.gateway.protocols.chat_body import ChatBody, ResponseFormat, StructuredOutputs
from services.gateway.protocols.completions_body import CompletionsBody
from services.gateway.protocols.responses_body import Format
from shared.errors import BadParameter


def grammar_of(body: ChatBody | CompletionsBody) -> str | None:
    """Raises BadParameter: two wishes at once, or one that cannot be held to."""
    found = {
        "response_format": _of_format(body.response_format),
        **_of_structured(body.structured_outputs, "structured_outputs."),
        **_of_structured(
            StructuredOutputs(
                json=body.guided_json,
                regex=body.guided_regex,
                choice=body.guided_choice,
                grammar=body.guided_grammar,
            ),
            "guided_",
        ),
    }
    wanted = {param: grammar for param, grammar in found.items() if grammar is not None}
    if len(wanted) > 1:
        first, second = list(wanted)[:2]
        raise BadParameter(f"{first} and {second} cannot both hold", param=second)
    return next(iter(wanted.values()), None)


def _of_format(wanted: ResponseFormat | None) -> str | None:
    if wanted is None or wanted.type == "text":
        return None
    if wanted.type == "json_object":
        return grammars.json_object()
    if wanted.type != "json_schema":
        raise BadParameter(
            "response_format.type must be text, json_object or json_schema",
            param="response_format.type",
        )
    param = "response_format.json_schema.schema"
    if wanted.json_schema is None:
        raise BadParameter(f"{param} is missing", param=param)
    return grammars.json_schema(wanted.json_schema.schema_, param)


def grammar_of_format(wanted: Format | None, where: str) -> str | None:
    """The format of Responses and Messages, which hold the schema itself. Raises BadParameter."""
    if wanted is None or wanted.type == "text":
        return None
    if wanted.type == "json_object":
        return grammars.json_object()
    if wanted.type != "json_schema":
        raise BadParameter(
            f"{where}.type must be text, json_object or json_schema", param=f"{where}.type"
        )
    return grammars.json_schema(wanted.schema_, f"{where}.schema")


def _of_structured(wanted: StructuredOutputs | None, prefix: str) -> dict[str, str]:
    if wanted is None:
        return {}
    found = {}
    if wanted.json is not None:
        found["json"] = grammars.json_schema(wanted.json, f"{prefix}json")
    if wanted.regex is not None:
        found["regex"] = grammars.regex(wanted.regex, f"{prefix}regex")
    if wanted.choice is not None:
        found["choice"] = grammars.choice(wanted.choice, f"{prefix}choice")
    if wanted.grammar is not None:
        found["grammar"] = grammars.lark(wanted.grammar, f"{prefix}grammar")
    if wanted.json_object:
        found["json_object"] = grammars.json_object()
    return {f"{prefix}{name}": grammar for name, grammar in found.items()}
