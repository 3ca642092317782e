"""How much a model shall think: the word for it in every protocol, and what it means here."""

from typing import Any, Literal

Effort = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]

# Tokens of reasoning where the template does not know the word itself: Google's figures for the
# same words in its OpenAI-compatible API. Above medium the model thinks as long as it likes.
BUDGETS: dict[Effort, int] = {"minimal": 1024, "low": 1024, "medium": 8192}


def template_options(effort: Effort | None) -> dict[str, Any]:
    """For templates with a switch, and for those that know the word."""
    if effort is None:
        return {}
    return {"enable_thinking": False} if effort == "none" else {"reasoning_effort": effort}
