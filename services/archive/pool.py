"""`SpanPool`: every span once, whoever holds it."""

from services.archive.span import Span


class SpanPool:
    """Counts the holds on each span; the last drop frees it.

    Sessions hold a span through their entries, a snapshot on its way to the engine pins it.
    """

    def __init__(self) -> None:
        self.nbytes = 0
        self._spans: dict[bytes, Span] = {}
        self._holds: dict[bytes, int] = {}

    def __len__(self) -> int:
        return len(self._spans)

    def get(self, span_id: bytes) -> Span | None:
        return self._spans.get(span_id)

    def holds(self, span_id: bytes) -> int:
        return self._holds.get(span_id, 0)

    def hold(self, span: Span) -> None:
        """One more hold; a span that is new here is charged."""
        held = self._holds.get(span.span_id, 0)
        if not held:
            self._spans[span.span_id] = span
            self.nbytes += span.nbytes
        self._holds[span.span_id] = held + 1

    def drop(self, span: Span) -> None:
        left = self._holds[span.span_id] - 1
        if left:
            self._holds[span.span_id] = left
            return
        del self._holds[span.span_id], self._spans[span.span_id]
        self.nbytes -= span.nbytes

    def check(self, expected: dict[bytes, int]) -> None:
        """The holds are `expected` (span id to count), and the bytes are those of the spans."""
        assert self._holds == expected, "a span is held by nobody, or freed too early"
        assert set(self._spans) == set(self._holds)
        assert self.nbytes == sum(span.nbytes for span in self._spans.values())
