"""The indexer as a process of its own."""

import json
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import tokenizers
import zmq

from shared import endpoints, sockets
from shared.endpoints import Endpoints
from shared.messages import BuildIndex, GatewayToIndexer, IndexReady, Ready
from shared.wire import Codec
from tests.indexer.stand_in import int32, listing

pytestmark = pytest.mark.e2e

WAIT_MS = 30_000
WORDS = ("<|end|>", "a", "b", "c", ":", "1", "2", "3")


@dataclass
class Service:
    """The process, and its peers' ends of the channels."""

    process: subprocess.Popen[bytes]
    folder: Path
    supervisor: Any
    gateway: Any
    engine: Any

    def receive(self, socket: Any, kind: Any) -> Any:
        assert socket.poll(WAIT_MS), f"no {kind.__name__} arrived"
        return Codec(kind).decode(socket.recv_multipart())

    def send(self, message: GatewayToIndexer) -> None:
        self.gateway.setsockopt(zmq.SNDTIMEO, WAIT_MS)
        self.gateway.send_multipart(Codec(GatewayToIndexer).encode(message))


def model_folder(folder: Path) -> Path:
    model = tokenizers.models.WordLevel({w: i for i, w in enumerate(WORDS)}, unk_token="a")
    tokenizer = tokenizers.Tokenizer(model)
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    tokenizer.add_special_tokens(["<|end|>"])
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "config.json").write_text(json.dumps({"max_position_embeddings": 512}))
    return folder


def start(model: Path, folder: Path) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(
        [sys.executable, "-m", "services.indexer", f"--model={model}", f"--sockets={folder}"],
        stderr=subprocess.PIPE,
    )


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    context: Any = zmq.Context()
    with tempfile.TemporaryDirectory(prefix="ninfer-") as name:
        channels: Endpoints = endpoints.in_directory(Path(name))
        supervisor = sockets.bind(context, zmq.PULL, channels.supervisor)
        engine = sockets.bind(context, zmq.PULL, channels.indexes)
        gateway = sockets.connect(context, zmq.PUSH, channels.build)
        process = start(model_folder(tmp_path), Path(name))
        yield Service(process, Path(name), supervisor, gateway, engine)
        process.kill()
        process.communicate()
        context.destroy(linger=0)


def test_it_announces_itself_builds_and_ends_cleanly_on_sigterm(service: Service) -> None:
    ready = service.receive(service.supervisor, Ready)
    assert (ready.service, ready.pid) == ("indexer", service.process.pid)
    assert ready.facts == {"max_context": "512"}

    texts = (listing("a b", "b c", "c a <|end|>"),)
    prompt_ids = int32(1, 2, 3, 0, 1, 2)
    service.send(
        BuildIndex(request_id="r", prompt_ids=prompt_ids, tool_texts=texts, predicted=None)
    )
    index = service.receive(service.engine, IndexReady)
    assert index.request_id == "r"
    assert index.sources[0].tokens.tolist()[:7] == [1, 2, 3, -1, 1, 2, -1]
    assert [span.kind for span in index.sources[0].spans] == ["derived"]

    service.process.send_signal(signal.SIGTERM)
    assert service.process.wait(20) == 0
    assert not (service.folder / "build.sock").exists()


def test_a_model_folder_without_a_tokenizer_stops_the_start_with_a_sentence(
    tmp_path: Path,
) -> None:
    (tmp_path / "config.json").write_text('{"max_position_embeddings": 512}')
    with tempfile.TemporaryDirectory(prefix="ninfer-") as name:
        process = start(tmp_path, Path(name))
        _, stderr = process.communicate(timeout=30)
    assert process.returncode == 2
    assert stderr.startswith(b"error: ")
    assert b"tokenizer.json" in stderr
