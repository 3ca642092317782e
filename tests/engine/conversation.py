"""One engine that serves request after request, as a conversation needs it."""

from services.engine.post import FromGateway
from shared.messages import Finished, Generate, GenerationStats, OutputTokens
from tests.engine.local import MAX_TURNS, LocalEngine, LocalPost


class Conversation:
    """One engine that serves one request after another."""

    def __init__(
        self,
        local: LocalEngine,
        *,
        host_blocks: int = 0,
        width: int = 15,
        draft_tokens: int = 0,
    ) -> None:
        self.engine, self.post, self.limits = local.engine(
            width, chunk=64, host_blocks=host_blocks, draft_tokens=draft_tokens
        )

    def ask(self, *requests: Generate) -> list[tuple[list[int], GenerationStats]]:
        first = len(self.post.sent)
        self.post.inbound += [FromGateway(b"g", request) for request in requests]
        for _ in range(MAX_TURNS):
            self.engine.turn(self.limits)
            self.engine.check()
            ends = {m.request_id: m for m in self.post.sent[first:] if isinstance(m, Finished)}
            if len(ends) == len(requests):
                break
        return [
            (tokens_of(self.post, request.request_id), ends[request.request_id].stats)
            for request in requests
        ]


def tokens_of(post: LocalPost, request_id: str) -> list[int]:
    parts = [m for m in post.sent if isinstance(m, OutputTokens) and m.request_id == request_id]
    return [token for part in parts for token in part.token_ids.tolist()]
