"""An OpenAI-compatible server that answers with scripted bytes, in the shapes of other servers."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Chunks = list[dict[str, Any]]


class FakeServer(ThreadingHTTPServer):
    """`bodies` keeps what it was asked, `keys` the keys that came along."""

    def __init__(self, owner: str, chunks: Chunks, *, status: int = 200, port: int = 0) -> None:
        super().__init__(("127.0.0.1", port), Handler)
        self.owner, self.chunks, self.status = owner, chunks, status
        self.bodies: list[dict[str, Any]] = []
        self.keys: list[str | None] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class Handler(BaseHTTPRequestHandler):
    server: FakeServer

    def do_GET(self) -> None:
        card = {"id": "other", "object": "model", "owned_by": self.server.owner}
        self._reply(200, {"object": "list", "data": [{**card, "meta": {"n_ctx_train": 4096}}]})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.bodies.append(body)
        self.server.keys.append(self.headers["Authorization"])
        if self.path.endswith("/tokenize"):
            self._reply(200, {"tokens": list(body["content"].encode())})
        elif self.server.status != 200:
            self._reply(self.server.status, {"error": {"message": "no room\nleft"}})
        else:
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.end_headers()
            for chunk in self.server.chunks:
                self.wfile.write(b"data: " + json.dumps(chunk).encode() + b"\n\n")
            self.wfile.write(b"data: [DONE]\n\n")

    def _reply(self, status: int, body: dict[str, Any]) -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing on stderr."""


@contextmanager
def fake_server(owner: str, chunks: Chunks, *, status: int = 200) -> Iterator[FakeServer]:
    server = FakeServer(owner, chunks, status=status)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join(10)
        server.server_close()


def llama_cpp(*pieces: str) -> Chunks:
    """As llama-server streams a chat completion with `stream_options.include_usage`."""
    base = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "model": "other"}
    timings = {
        "cache_n": 20,
        "prompt_n": 10,
        "prompt_ms": 5.0,
        "predicted_n": len(pieces),
        "predicted_ms": 40.0,
        "predicted_per_second": 99.0,
        "draft_n": 6,
        "draft_n_accepted": 4,
    }
    count = len(pieces)
    usage = {"prompt_tokens": 30, "completion_tokens": count, "total_tokens": 30 + count}
    deltas: list[dict[str, Any]] = [{"role": "assistant", "content": None}]
    deltas += [{"content": piece} for piece in pieces]
    chunks = [
        {**base, "choices": [{"index": 0, "finish_reason": None, "delta": d}]} for d in deltas
    ]
    end = {**base, "choices": [{"index": 0, "finish_reason": "length", "delta": {}}]}
    return [*chunks, end, {**base, "choices": [], "usage": usage, "timings": timings}]


def vllm(*pieces: str) -> Chunks:
    """As vLLM does: no timings, and `prompt_tokens_details` null unless it was started to tell."""
    chunks = [chunk for chunk in llama_cpp(*pieces) if "usage" not in chunk]
    usage = {"prompt_tokens": 30, "completion_tokens": len(pieces), "prompt_tokens_details": None}
    return [*chunks, {"choices": [], "usage": usage}]
