"""`--lookup-ngram N`: what followed the last N tokens when they last stood in the ledger."""

from services.engine.drafting.sources import RequestSources
from services.engine.ledger import Ledger
from shared.matching.contexts import query_bytes


def look_up(sources: RequestSources, ledger: Ledger, ngram: int, width: int) -> tuple[int, ...]:
    """At most `width` tokens out of prompt and output, the newer first; empty if there are none."""
    if len(ledger) < ngram:
        return ()
    query = query_bytes(ledger.tokens[-ngram:])
    for index in reversed(sources.ledger_indexes):
        matches = index.matches(query, min_match=ngram)
        if matches is not None:
            newest = int(matches.positions.max())
            copied: list[int] = index.continuation(newest, index.available(newest, width)).tolist()
            return tuple(copied)
    return ()
