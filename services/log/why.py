"""Where one request's time went, and what would have made it faster."""

from collections.abc import Iterator
from typing import NamedTuple

from msgspec import UNSET

from services.gateway.log_lines import RequestDone, Result
from services.log.tail import tokens_per_pass

BUSY_SHARE = 0.2  # of the whole, from which on a stage is worth a word
MANY_REJECTED = 0.5  # of the drafted tokens
FEW_TOKENS = 1.3  # a pass: hardly more than one at a time
HOST_SHARE = 0.25  # of a decode
REUSE_ENDS = {
    "complete": "all but the last, which is always computed",
    "appended": "everything that was known was reused; the rest is new",
    "changed": "what was known goes on differently from there on: the client changed its prompt in"
    " the middle (a date, a reordered tool list, an edited message)",
    "other_salt": "another key has the same beginning; keys do not share",
    "unknown": "no slot held anything like it: the first request, or its KV was given to others"
    " (--max-concurrency, --host-cache-mib)",
}


class Stage(NamedTuple):
    name: str
    seconds: float
    about: str


def stages(line: RequestDone) -> list[Stage]:
    """Where the time went, in order; together all of it."""
    t, result = line.timings_seconds, line.result
    passes = f"{result.decode_passes} passes, {result.completion_tokens} tokens"
    parts = [
        Stage("prepare", t.prepare, "parse, template, tokenise"),
        Stage("queue", t.queue, "waiting for a row"),
        Stage("prefill", t.prefill, f"{result.computed_prefill_tokens} prompt tokens computed"),
    ]
    if result.choices is not UNSET:  # the model's time is not theirs together
        passes = f"{len(result.choices)} choices: {passes} together"
        parts.append(Stage("decode", t.decode, passes))
        rest = t.total - sum(stage.seconds for stage in parts)
        return [*parts, Stage("rest", max(0.0, rest), "between the processes, and the last write")]
    parts += [
        Stage("decode: model", t.forward, passes),
        Stage("decode: neural", t.neural, "the neural drafter"),
        Stage("decode: host", t.host - t.neural, "copying, verifying, sending"),
    ]
    # other requests' rows take turns, and the reader may be slow
    waited = t.decode - t.forward - t.host
    parts.append(Stage("decode: between", max(0.0, waited), "passes without this request"))
    rest = t.total - sum(stage.seconds for stage in parts)
    parts.append(Stage("rest", max(0.0, rest), "between the processes, and the last write"))
    return parts


def reasons(line: RequestDone) -> Iterator[str]:
    """Sentences, the most telling first; at least one."""
    t, speculative = line.timings_seconds, line.speculative
    total = t.total or 1e-9
    if line.result.finish_reason == "cancelled":
        yield f"The client left after {line.result.completion_tokens} tokens."
    if t.queue / total >= BUSY_SHARE:
        yield "It waited for a row: more requests than --max-concurrency ran at once."
    if t.prefill / total >= BUSY_SHARE:
        yield f"The prompt took {t.prefill / total:.0%} of the time. {_reuse(line.result)}"
    each = tokens_per_pass(line)
    if each is None:
        yield "No pass followed the prompt's, so nothing could be copied."
        return
    if t.decode / total >= BUSY_SHARE:
        if not speculative.drafted_tokens:
            yield _nothing_drafted(line)
        elif each < FEW_TOKENS:
            yield (
                f"A pass yielded {each:.2f} tokens: {speculative.fallback_steps} of"
                f" {line.result.decode_passes} passes had no draft. New text cannot be copied."
            )
        else:
            saved = 1 - 1 / each
            yield f"A pass yielded {each:.2f} tokens, so drafts saved {saved:.0%} of the passes."
    rejected = speculative.drafted_tokens - speculative.accepted_tokens
    if speculative.drafted_tokens and rejected / speculative.drafted_tokens >= MANY_REJECTED:
        yield f"{rejected} of {speculative.drafted_tokens} drafted tokens were rejected."
    if speculative.ngram_index_wait_rounds > 2:
        late = speculative.ngram_index_wait_rounds
        yield f"The prompt's index was late: {late} rounds ran without copies from it."
    share = (t.host - t.neural) / t.decode if t.decode and line.result.choices is UNSET else 0.0
    if share >= HOST_SHARE:
        yield f"The host took {share:.0%} of the decoding: other programs use its cores."
    if line.ngram_archive.reason:
        yield f"The draft session was of no use: {line.ngram_archive.reason}."


def _reuse(result: Result) -> str:
    why = REUSE_ENDS.get(result.prefix_cache_end, result.prefix_cache_end)
    return (
        f"{result.prefix_cache_hit_tokens} of its {result.prompt_tokens} tokens were reused: {why}."
    )


def _nothing_drafted(line: RequestDone) -> str:
    narrowed = line.request.speculation
    if narrowed and narrowed.ngram_draft_tokens == narrowed.draft_tokens == 0:
        return "Nothing was drafted: the request turned it off."
    if line.speculative.backend == "off":
        return "Nothing was drafted: copies are off (--ngram-draft-tokens 15 turns them on)."
    return (
        "Nothing was drafted: no source held what the model wrote, or no copy was worth its cost"
        f" (ninfer-explain --url URL --request {line.request.request_id} shows each round)."
    )
