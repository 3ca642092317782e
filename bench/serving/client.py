"""One streamed chat completion of any OpenAI-compatible server, timed by the client's clock."""

import json
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from bench.serving.workloads import Turn
from shared.errors import ConfigError

REQUEST_S = 900.0


class Refused(Exception):
    """The server answered with an error, or not at all; says which in one sentence."""


@dataclass(frozen=True)
class Answer:
    """`ttft_s` is from sending to the first text; `decode_s` from there to the end. Counts that a
    server does not tell are None."""

    text: str
    finish_reason: str
    prompt_tokens: int | None
    output_tokens: int | None
    reused_tokens: int | None  # of the prompt, from a cache
    ttft_s: float
    decode_s: float
    timings: dict[str, Any] = field(default_factory=dict)  # as llama.cpp and ninfer say them
    speculative: dict[str, Any] = field(default_factory=dict)  # ninfer's

    @property
    def decode_tok_s(self) -> float | None:
        """Without the first token, which the prefill makes."""
        if self.output_tokens is None or self.output_tokens < 2 or self.decode_s <= 0:
            return None
        return (self.output_tokens - 1) / self.decode_s

    @property
    def computed_tokens(self) -> int | None:
        if self.prompt_tokens is None or self.reused_tokens is None:
            return None
        return self.prompt_tokens - self.reused_tokens


@dataclass(frozen=True)
class Card:
    """What `/v1/models` says of one model."""

    model: str
    kind: str  # ninfer, llamacpp, vllm, or what else owns it
    context: int | None  # tokens of prompt and output
    exact: bool | None  # passes of every width give the same bits; ninfer says it


class ChatClient:
    """Talks to the server at `url`, with or without `/v1`."""

    def __init__(self, url: str, *, model: str | None = None, key: str | None = None) -> None:
        self._root = url.rstrip("/").removesuffix("/v1")
        self._key = key
        self.card = self._card(model)

    def ask(self, turn: Turn, *, output_tokens: int, salt: str, ninfer: dict[str, Any]) -> Answer:
        """`salt` names a cache: the same prompt with another salt is computed anew, if the server
        knows such. `ninfer` goes to a ninfer alone.

        Raises:
            Refused: an error, before the stream or inside it.
        """
        body = self.body(turn, output_tokens=output_tokens, salt=salt, ninfer=ninfer)
        began_s = time.perf_counter()
        heard = _Heard()
        for chunk in self._stream(body):
            heard.take(chunk, time.perf_counter() - began_s)
        answer = heard.answer()
        last = turn.messages[-1]
        if last["role"] != "assistant":
            return answer
        # llama.cpp says the prefilled beginning again, the others go on behind it
        return replace(answer, text=answer.text.removeprefix(last["content"]))

    def body(
        self, turn: Turn, *, output_tokens: int, salt: str, ninfer: dict[str, Any]
    ) -> dict[str, Any]:
        body: dict[str, Any] = {
            "model": self.card.model,
            "messages": turn.messages,
            "max_tokens": output_tokens,
            "stream": True,
            "stream_options": {"include_usage": True},
            **turn.sampling,
        }
        continues = turn.messages[-1]["role"] == "assistant"
        match self.card.kind:
            case "ninfer":
                body["ninfer"] = {"cache_salt": salt, **ninfer}
                if turn.held is not None:
                    body["guided_choice"] = [turn.held]
            case "vllm":
                body["cache_salt"] = salt
                if continues:
                    body |= {"continue_final_message": True, "add_generation_prompt": False}
                if turn.held is not None:
                    body["structured_outputs"] = {"choice": [turn.held]}
            case "llamacpp":
                if turn.held is not None:
                    body["grammar"] = f"root ::= {json.dumps(turn.held)}"
        return body

    def tokenize(self, text: str) -> list[int]:
        """Of a ninfer or a llama.cpp."""
        return list(self._json("/tokenize", {"content": text})["tokens"])

    def prompt_tokens(self, turn: Turn) -> int:
        """What a ninfer's template makes of the conversation."""
        return len(self._json("/tokenize", {"messages": turn.messages})["tokens"])

    def _card(self, wanted: str | None) -> Card:
        found = self._json("/v1/models", None).get("data") or []
        cards = [card for card in found if wanted in (None, card.get("id"))]
        if not cards:
            raise Refused(f"{self._root} has no model {wanted or ''}".rstrip())
        card = cards[0]
        meta = card.get("meta") or {}
        context = card.get("max_model_len") or meta.get("n_ctx") or meta.get("n_ctx_train")
        return Card(card["id"], card.get("owned_by", "unknown"), context, meta.get("exact"))

    def _json(self, path: str, body: dict[str, Any] | None) -> dict[str, Any]:
        with self._open(path, body) as response:
            try:
                found: dict[str, Any] = json.loads(response.read())
            except ValueError as exc:
                raise Refused(f"{self._root}{path} gave no JSON: {exc}") from exc
        return found

    def _stream(self, body: dict[str, Any]) -> Iterator[dict[str, Any]]:
        with self._open("/v1/chat/completions", body) as response:
            try:
                for raw in response:
                    line = raw.strip()
                    if line.startswith(b"data:") and (data := line[5:].strip()) != b"[DONE]":
                        yield json.loads(data)
            except (OSError, ValueError) as exc:
                raise Refused(f"{self._root} broke its stream: {exc}") from exc

    def _open(self, path: str, body: dict[str, Any] | None) -> Any:
        headers = {"Content-Type": "application/json"}
        if self._key is not None:
            headers["Authorization"] = f"Bearer {self._key}"
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"{self._root}{path}", data, headers)
        try:
            return urllib.request.urlopen(request, timeout=REQUEST_S)
        except urllib.error.HTTPError as exc:
            with exc:
                said = exc.read().decode(errors="replace")
            raise Refused(f"{self._root}{path} answered {exc.code}: {_sentence(said)}") from exc
        except OSError as exc:
            reason = getattr(exc, "reason", exc)
            raise Refused(f"{self._root} does not answer: {reason}") from exc
        except ValueError as exc:
            raise ConfigError(f"{self._root} is no address of a server: {exc}") from exc


class _Heard:
    """A stream as far as it has come."""

    def __init__(self) -> None:
        self._pieces: list[str] = []
        self._first_s: float | None = None
        self._end_s = 0.0
        self._finish = ""
        self._usage: dict[str, Any] = {}
        self._timings: dict[str, Any] = {}
        self._speculative: dict[str, Any] = {}

    def take(self, chunk: dict[str, Any], now_s: float) -> None:
        if error := chunk.get("error"):
            raise Refused(f"failed inside the stream: {_sentence(json.dumps(error))}")
        for choice in chunk.get("choices") or []:
            delta = choice.get("delta") or {}
            piece = (delta.get("reasoning_content") or "") + (delta.get("content") or "")
            if piece:
                self._pieces.append(piece)
                self._first_s = self._first_s if self._first_s is not None else now_s
            if piece or choice.get("finish_reason"):
                self._end_s = now_s
            self._finish = choice.get("finish_reason") or self._finish
        self._usage = chunk.get("usage") or self._usage
        self._timings = chunk.get("timings") or self._timings
        self._speculative = (chunk.get("ninfer") or {}).get("speculative") or self._speculative

    def answer(self) -> Answer:
        if not self._finish:
            raise Refused("the stream ended without a finish reason")
        first_s = self._end_s if self._first_s is None else self._first_s
        timings, usage = self._timings, self._usage
        prompt, output = usage.get("prompt_tokens"), usage.get("completion_tokens")
        reused = (usage.get("prompt_tokens_details") or {}).get("cached_tokens")
        if "prompt_n" in timings:  # llama.cpp counts here what it computed, and there nothing
            reused = timings.get("cache_n", reused)
            if prompt is None and reused is not None:
                prompt = timings["prompt_n"] + reused
            output = timings.get("predicted_n") if output is None else output
            if reused is None and prompt is not None:
                reused = prompt - timings["prompt_n"]
        return Answer(
            text="".join(self._pieces),
            finish_reason=self._finish,
            prompt_tokens=prompt,
            output_tokens=output,
            reused_tokens=reused,
            ttft_s=first_s,
            decode_s=self._end_s - first_s,
            timings=timings,
            speculative=self._speculative,
        )


def _sentence(said: str) -> str:
    """The message in an error body, or its beginning."""
    try:
        found = json.loads(said)
        error = found.get("error", found)
        said = error.get("message", said) if isinstance(error, dict) else str(error)
    except (ValueError, AttributeError):
        pass
    return " ".join(str(said).split())[:300]
