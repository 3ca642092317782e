"""Lines of a request log, written as the gateway writes them."""

from pathlib import Path
from typing import Any

from services.gateway.outcome import Outcome, together
from services.gateway.request_log import RequestLog
from shared.messages import EngineLimits, EngineReady, ModelFacts, SourceStats
from tests.scripted_engine import make_stats

NO_ARCHIVE = {
    "enabled": False,
    "bound": False,
    "reason": None,
    "published": False,
    "generation": 0,
    "sources": None,
    "session_bytes": None,
    "total_bytes": None,
    "sampling_seed": None,
}
SERVER = {
    "model_id": "tiny",
    "host": "127.0.0.1",
    "port": 8080,
    "has_api_key": False,
    "max_body_mib": 32,
    "default_max_tokens": 4096,
    "tool_parser": "none",
    "sampling_defaults": {"temperature": 0.0, "top_p": 1.0, "top_k": 0, "min_p": 0.0},
    "argv": [],
}
ENGINE = EngineReady(
    instance_id="e",
    model=ModelFacts(
        model_id="tiny",
        family="llama",
        vocab_size=10,
        max_context=512,
        parameters=1,
        weight_bytes=2,
        dtype="bfloat16",
        device="cpu",
        threads=1,
    ),
    limits=EngineLimits(
        max_concurrency=1,
        max_waiting=1,
        spec="off",
        draft_tokens=0,
        ngram_draft_tokens=15,
        ngram_policy="adaptive",
        ngram_min_match=1,
        lookup_ngram=0,
    ),
)
TIMINGS: dict[str, float | None] = {"prepare": 0.01, "ttft": 0.1, "total": 1.0}
ERROR = {"status": 400, "type": "BadParameter", "code": None, "param": "n", "reason": "too many"}


class Log:
    """One file; each call writes one line."""

    def __init__(self, path: Path, **options: int) -> None:
        self.path = path
        self.log = RequestLog(path, SERVER, **options)

    def start(self) -> None:
        self.log.server_start(ENGINE)

    def done(
        self,
        request_id: str,
        *,
        client: str = "codex/1",
        session: str | None = None,
        total_s: float = 1.0,
        sources: tuple[SourceStats, ...] = (),
        tokens: int = 11,
        choices: int = 1,
    ) -> None:
        """`tokens` and `sources` are each choice's."""
        outcome = Outcome(
            reason="stop",
            stats=make_stats(20, tokens, sources),
            completion_tokens=tokens,
            reasoning_tokens=0,
            tool_calls=0,
            timings=TIMINGS | {"total": total_s},
            archive=NO_ARCHIVE,
        )
        if choices > 1:
            outcome = together([outcome] * choices)
        self.log.request_done(self.request(request_id, client, session), outcome)

    def error(self, request_id: str, *, client: str = "codex/1") -> None:
        self.log.request_error(self.request(request_id, client, None), "prepare", ERROR)

    @staticmethod
    def request(request_id: str, client: str, session: str | None) -> dict[str, Any]:
        return {
            "request_id": request_id,
            "protocol": "openai_chat_completions",
            "client": client,
            "draft_session": session,
        }
