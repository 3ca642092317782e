"""`--lookup-ngram N`: what followed the last N tokens when they last stood in the ledger."""

from services.engine.drafting.sources import RequestSources
from services.engine.ledger import Ledger
from shared.matching.contexts import query_bytes
from shared.matching.lookup import Source


def look_up(sources: RequestSources, ledger: Ledger, ngram: int, width: int) -> tuple[int, ...]:
    """At most `width` tokens out of prompt and output, the newer first; empty if there are none."""
    if len(ledger) < ngram:
        return ()
    query = query_bytes(ledger.tokens[-ngram:])
    output, prompt = sources.output, sources.prompt
    found = output.matches(query, min_match=ngram)
    if found is not None:
        newest = int(found.positions.max())
        return _copied(output, newest, output.available(newest, width))
    found = prompt.matches(query, min_match=ngram) if prompt is not None else None
    if prompt is None or found is None:
        return ()
    within = found.positions[found.positions < ledger.prompt_len]
    if not within.size:
        return ()
    newest = int(within.max())
    return _copied(prompt, newest, prompt.available(newest, width))


def _copied(index: Source, position: int, count: int) -> tuple[int, ...]:
    copied: list[int] = index.continuation(position, count).tolist()
    return tuple(copied)
