"""ninfer and its peers decode the same prompts, one server at a time, in turns."""

import statistics
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from bench.first_light import Bar, check_copy, file_copy, progress
from bench.peers import llama_cpp, vllm
from bench.peers.server import PeerMissing, PeerServer, Setting
from bench.server import BenchServer
from bench.serving.client import Answer, ChatClient, Refused
from bench.serving.workloads import Turn
from bench.texts import CONFIG, INVENTORY

OURS = "ninfer"
# those beyond bf16 are asked for at the start, and left out if the server does not know them
OUR_WEIGHTS = ("bf16", "int8", "int4")
SOURCE = f"{INVENTORY}\n\n{CONFIG}"
QUESTION = "Explain in detail how a steam engine works and why it changed the world."
GREEDY = {"temperature": 0, "ignore_eos": True}  # all answers are equally long
COPY = Turn("copy", file_copy(SOURCE), sampling=GREEDY)
PLAIN = Turn("plain", [{"role": "user", "content": QUESTION}], sampling=GREEDY)
PLAIN_OURS = {"speculation": False}
START_S = 300.0  # the first start compiles the CPU kernels
BURST = 0.05  # of an answer's time
FINALISTS = 2  # draft settings of a peer that are measured, the fastest of one trial each


@dataclass
class Contestant:
    """A server under one setting, and what it reached."""

    peer: str
    weights: str
    drafts: str
    name: str
    server: BenchServer | PeerServer
    client: ChatClient
    speeds: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    prompt_tokens: int | None = None  # of what it was asked last

    def median(self, workload: str) -> float:
        return statistics.median(self.speeds[workload])

    def shown(self, workload: str) -> str:
        return f"{self.name} {self.median(workload):.1f} tok/s"

    def decode(self, turn: Turn, tokens: int) -> float:
        """Tokens a second behind the first, by the client's clock.

        Raises:
            Refused: it does not answer, or with fewer tokens.
        """
        ninfer: dict[str, Any] = PLAIN_OURS if turn is PLAIN else {}
        with self._awake():
            answer = self.client.ask(turn, output_tokens=tokens, salt="contest", ninfer=ninfer)
        self.prompt_tokens = answer.prompt_tokens
        if answer.output_tokens != tokens:
            raise Refused(f"{self.name}: {answer.output_tokens} tokens of {tokens}")
        speed = speed_of(answer)
        if turn is COPY:
            _check(answer, self.name)
        return speed

    def stop(self) -> None:
        """A peer's; ours are stopped at the end."""
        if isinstance(self.server, PeerServer):
            self.server.stop()

    @contextmanager
    def _awake(self) -> Iterator[None]:
        if isinstance(self.server, PeerServer):
            with self.server.awake():
                yield
        else:
            yield


def speed_of(answer: Answer) -> float:
    """Tokens a second behind the first. Where all came in one burst, which has no first, a second
    of the whole answer: vLLM held back what its suffix drafts made, and seemed to take no time."""
    whole_s = answer.ttft_s + answer.decode_s
    speed = answer.decode_tok_s
    if speed is None or answer.decode_s < BURST * whole_s:
        return (answer.output_tokens or 0) / whole_s
    return speed


def contest(
    model: Path,
    *,
    llama_server: Path,
    vllm_python: Path,
    threads: int,
    repeats: int,
    output: int,
) -> list[Bar]:
    """The bars against every peer that is installed; says which is not."""
    with ExitStack() as stack:
        work = Path(stack.enter_context(TemporaryDirectory(prefix="ninfer-peers-")))
        installed: list[Setting] = []
        finders: tuple[Callable[[], list[Setting]], ...] = (
            lambda: llama_cpp.settings(llama_server, model, threads=threads),
            lambda: vllm.settings(vllm_python, model, work, threads=threads),
        )
        for find in finders:
            try:
                installed += find()
            except PeerMissing as exc:
                progress(f"{exc}; nothing is compared with it")
        if not installed:
            return []
        ours = start_ours(model, threads, stack)
        runners = finalists(chain(ours, start_peers(installed, stack)), output)
        measure(runners, repeats, output)
    return list(bars(runners, f"{threads} thread each, {output} tokens, {repeats} repeats"))


def start_ours(model: Path, threads: int, stack: ExitStack) -> list[Contestant]:
    found = []
    for weights in OUR_WEIGHTS:
        flags = [] if weights == "bf16" else [f"--weights={weights}"]
        try:
            server = BenchServer.start(
                model,
                "--ngram-draft-tokens=63",
                f"--threads={threads}",
                *flags,
                start_s=START_S,
            )
        except SystemExit as exc:
            if not flags:
                raise
            progress(f"{OURS} {weights}: not offered ({exc})")
            continue
        stack.callback(server.stop)
        client = ChatClient(f"http://127.0.0.1:{server.port}")
        found.append(Contestant(OURS, weights, "copies", f"{OURS} {weights}", server, client))
    return found


def start_peers(installed: Sequence[Setting], stack: ExitStack) -> Iterator[Contestant]:
    """Each when it is asked for; a setting that does not start is left out and said."""
    for setting in installed:
        progress(f"{setting.name}: starting")
        try:
            server = PeerServer(setting)
        except PeerMissing as exc:
            progress(str(exc))
            continue
        stack.callback(server.stop)
        yield Contestant(
            setting.peer, setting.weights, setting.drafts, setting.name, server, server.client
        )


def finalists(peers: Iterable[Contestant], output: int) -> list[Contestant]:
    """All that decode plainly, and of each peer the fastest drafting settings of one trial, which
    is everyone's warm-up too. Of ours all go on."""
    chosen = []
    tried: dict[str, list[tuple[float, Contestant]]] = defaultdict(list)
    for one in peers:
        turn, tokens = (PLAIN, output) if one.drafts == "none" else (COPY, 2 * output)
        try:
            speed = one.decode(turn, tokens)
        except Refused as exc:
            progress(f"{exc}; it is left out")
            one.stop()
            continue
        behind = f"{tokens} tokens behind {one.prompt_tokens}"
        progress(f"{one.name}: {speed:.1f} tok/s in its trial ({turn.name}, {behind})")
        if turn is PLAIN or one.peer == OURS:
            chosen.append(one)
        else:
            found = tried[one.peer]
            found.append((speed, one))
            found.sort(key=lambda pair: -pair[0])
            for _, beaten in found[FINALISTS:]:
                beaten.stop()
            del found[FINALISTS:]
    return chosen + [one for found in tried.values() for _, one in found]


def measure(runners: Sequence[Contestant], repeats: int, output: int) -> None:
    """The order turns round from one repeat to the next."""
    for repeat in range(repeats):
        progress(f"peers: repeat {repeat + 1} of {repeats}")
        for one in runners if repeat % 2 == 0 else reversed(runners):
            if one.drafts != "none":
                one.speeds["copy"].append(one.decode(COPY, 2 * output))
            if one.peer == OURS or one.drafts == "none":
                one.speeds["plain"].append(one.decode(PLAIN, output))
    for one in runners:
        for workload, taken in one.speeds.items():
            spread = f"{min(taken):.1f} to {max(taken):.1f}"
            progress(f"{one.name:34} {workload:5} {one.median(workload):7.1f} tok/s ({spread})")


def bars(runners: Sequence[Contestant], condition: str) -> Iterator[Bar]:
    """Of what has run; each says which settings it compares."""

    def best(workload: str, peer: str, weights: str | None = None) -> Contestant | None:
        able = [one for one in runners if one.peer == peer and one.speeds[workload]]
        able = [one for one in able if weights in (None, one.weights)]
        return max(able, key=lambda one: one.median(workload), default=None)

    for name, workload, us, them, bar in (
        ("copy_vs_llama_cpp", "copy", best("copy", OURS), best("copy", "llama.cpp"), 3),
        ("copy_vs_vllm", "copy", best("copy", OURS, "bf16"), best("copy", "vLLM"), 2),
        ("plain_vs_vllm", "plain", best("plain", OURS, "bf16"), best("plain", "vLLM"), 0.9),
        (
            "plain_vs_llama_cpp_bf16",
            "plain",
            best("plain", OURS, "bf16"),
            best("plain", "llama.cpp", "bf16"),
            0.8,
        ),
        (
            "plain_int4_vs_llama_cpp_q4_1",
            "plain",
            best("plain", OURS, "int4"),
            best("plain", "llama.cpp", "q4_1"),
            0.6,
        ),
    ):
        if us is not None and them is not None:
            said = f"{us.shown(workload)}, {them.shown(workload)}; {condition}"
            yield Bar(name, us.median(workload) / them.median(workload), bar, True, said)


def _check(answer: Answer, name: str) -> None:
    """A loop instead of the file has no speed."""
    try:
        check_copy(answer.text, SOURCE, name)
    except SystemExit as exc:
        raise Refused(str(exc)) from exc
