"""Why each round of a request drafted what it did: what `ninfer explain` and a record show."""

from services.engine.drafting.draft import Draft
from shared.messages import Declined, DraftSpan

MOST_SPANS = 4096  # of a request; later rounds are only counted


class DraftRecorder:
    """Spans in the order of the output; rounds in a row that drafted nothing are one."""

    def __init__(self) -> None:
        self.spans: list[DraftSpan] = []
        self.dropped = 0  # rounds that found no room

    def add(self, start: int, stop: int, draft: Draft, accepted: int) -> None:
        """A round that verified `draft` committed output tokens [start, stop)."""
        self._append(
            DraftSpan(
                start=start,
                stop=stop,
                kind=draft.kind,
                position=draft.position if draft.copied else None,
                match_length=draft.match_length,
                neural=draft.neural,
                drafted=len(draft.token_ids),
                accepted=accepted,
                declined=None,
            )
        )

    def add_plain(self, start: int, stop: int, declined: Declined) -> None:
        """A round without drafts."""
        if self.spans and self.spans[-1].declined == declined and self.spans[-1].stop == start:
            start = self.spans.pop().start
        self._append(
            DraftSpan(
                start=start,
                stop=stop,
                kind=None,
                position=None,
                match_length=0,
                neural=0,
                drafted=0,
                accepted=0,
                declined=declined,
            )
        )

    def _append(self, span: DraftSpan) -> None:
        if len(self.spans) < MOST_SPANS:
            self.spans.append(span)
        else:
            self.dropped += 1
