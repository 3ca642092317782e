"""One line a request, for a person who watches."""

from datetime import datetime

from msgspec import UNSET
from rich.text import Text

from services.gateway.log_lines import (
    AnyLine,
    Request,
    RequestDone,
    RequestError,
    RequestStart,
    Result,
    ServerStart,
)

ID_CHARACTERS = 8  # of the end of a request's id, which `ninfer-log why` takes too
FAST, SLOW = 3.0, 1.3  # tokens a pass


def shown(line: AnyLine) -> Text | None:
    """None for the start of a request: its end says as much."""
    text = Text(f"{datetime.fromtimestamp(line.timestamp_unix_ms / 1000):%H:%M:%S} ", "dim")
    match line:
        case ServerStart():
            model, limits = line.engine.model, line.engine.limits
            text.append("server ", "bold blue")
            text.append(f"{line.server.model_id} on {model.device} in {model.dtype}")
            text.append(f" ({model.weights}), " if model.weights != "full" else ", ")
            text.append(f"copies {limits.ngram_draft_tokens or 'off'}, spec {limits.spec}")
        case RequestStart():
            return None
        case RequestDone():
            _done(text, line)
        case RequestError():
            _name(text, line.request)
            text.append(f"{line.error.status} {line.error.code or line.error.type} ", "bold red")
            text.append(f"in {line.phase}")
            if line.error.param:
                text.append(f", {line.error.param}")
            text.append(f": {line.error.reason}")
    return text


def tokens_per_pass(line: RequestDone) -> float | None:
    """Of the decode passes; None without one."""
    passes = line.result.decode_passes
    return decoded_tokens(line.result) / passes if passes else None


def decoded_tokens(result: Result) -> int:
    """Without the first of each output, which a prompt's pass yields."""
    outputs = [result] if result.choices is UNSET else result.choices
    return sum(max(0, output.completion_tokens - 1) for output in outputs)


def _done(text: Text, line: RequestDone) -> None:
    result, timings = line.result, line.timings_seconds
    _name(text, line.request)
    text.append(
        f"{result.finish_reason:<9} ", "yellow" if result.finish_reason == "cancelled" else ""
    )
    text.append(f"{result.prompt_tokens:>6} in")
    reused = result.prefix_cache_hit_tokens / result.prompt_tokens if result.prompt_tokens else 0
    text.append(f" ({reused:4.0%} reused)", "green" if reused >= 0.5 else "dim")
    text.append(f" {result.completion_tokens:>5} out in {timings.total:6.2f} s")
    if result.choices is not UNSET:
        text.append(f" of {len(result.choices)} choices", "dim")
    each = tokens_per_pass(line)
    if each is not None:
        style = "bold green" if each >= FAST else "red" if each < SLOW else ""
        text.append(f" {each:5.1f} tokens/pass", style)
    speculative = line.speculative
    if speculative.drafted_tokens:
        kinds = sorted(speculative.sources, key=lambda s: -s.accepted_tokens)
        shares = ", ".join(f"{s.kind} {s.accepted_tokens}" for s in kinds if s.accepted_tokens)
        text.append(f" kept {speculative.accepted_tokens}/{speculative.drafted_tokens}", "cyan")
        text.append(f" ({shares})" if shares else "", "dim")


def _name(text: Text, request: Request) -> None:
    text.append(f"{request.request_id[-ID_CHARACTERS:]} ", "bold")
    if request.client is not UNSET and request.client:
        text.append(f"{request.client.split('/')[0].split(' ')[0][:14]:<14} ", "magenta")
