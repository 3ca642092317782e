"""The `ninfer` object of a request: this server's own switches, in every protocol."""

from typing import Annotated

import msgspec
from msgspec import Meta

from services.gateway.protocols.decoding import Count
from shared.messages import Speculation

Width = Annotated[int, Meta(ge=0, le=63)]
Match = Annotated[int, Meta(ge=1, le=64)]
Salt = Annotated[str, Meta(max_length=256)]


class NinferOptions(msgspec.Struct, forbid_unknown_fields=True):
    """Within what the server was started with: a request may narrow its drafts, never widen."""

    speculation: bool | None = None  # false: no drafts of any kind
    ngram_draft_tokens: Width | None = None
    ngram_min_match: Match | None = None
    draft_tokens: Annotated[int, Meta(ge=0, le=15)] | None = None
    cache_salt: Salt | None = None
    thinking_budget: Count | None = None


def speculation_of(options: NinferOptions | None) -> Speculation:
    if options is None:
        return Speculation()
    if options.speculation is False:
        return Speculation(ngram_draft_tokens=0, draft_tokens=0)
    return Speculation(
        ngram_draft_tokens=options.ngram_draft_tokens,
        draft_tokens=options.draft_tokens,
        ngram_min_match=options.ngram_min_match,
    )
