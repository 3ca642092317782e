"""An engine in this process, behind the messages of the real one but without sockets."""

import threading
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from services.engine.batch import Batch, RowSpan
from services.engine.drafting.router import DraftRouter
from services.engine.drafting.settings import DraftSettings, Policy
from services.engine.grammar import GrammarCompiler
from services.engine.host_tier import HostTier
from services.engine.intake import Intake
from services.engine.kv import KvCache
from services.engine.loop import Engine
from services.engine.models.load import load_model
from services.engine.models.mtp import MtpModule
from services.engine.models.weight_form import WeightForm
from services.engine.models.weights import Weights
from services.engine.mtp_drafter import MtpDrafter
from services.engine.planner import PlanLimits
from services.engine.post import FromGateway, Inbound
from services.engine.prefix import PrefixCache
from services.engine.prefix_blocks import BLOCK_TOKENS
from services.engine.runner import Runner
from services.engine.sessions import Sessions
from services.engine.target import Targets
from services.indexer.builder import Builder
from shared.messages import (
    BuildIndex,
    DraftSession,
    EngineLimits,
    EngineStatus,
    EngineToGateway,
    Failed,
    Finished,
    Generate,
    GenerationStats,
    IndexReady,
    OutputTokens,
    Sampling,
    SourceStats,
)
from shared.tokenizer import Tokenizer
from tests.engine.local_archive import ENGINE_ID, LocalArchive

MAX_TURNS = 5000


class LocalPost:
    """Queues in place of sockets."""

    def __init__(self) -> None:
        self.status: EngineStatus | None = None
        self.inbound: list[Inbound] = []
        self.sent: list[EngineToGateway] = []

    def receive(self, block_s: float) -> list[Inbound]:
        arrived = self.inbound.copy()
        self.inbound.clear()
        return arrived

    def send(self, gateway: bytes, message: EngineToGateway) -> None:
        self.sent.append(message)

    def flush(self) -> None:
        pass


@dataclass(frozen=True)
class Output:
    token_ids: list[int]
    end: Finished | Failed

    @property
    def accepted(self) -> int:
        return self.stats.speculative.ngram_accepted_tokens

    @property
    def stats(self) -> GenerationStats:
        assert isinstance(self.end, Finished)
        return self.end.stats

    @property
    def neural(self) -> SourceStats:
        """Of the neural drafter; zeros if it was never asked."""
        for source in self.stats.speculative.sources:
            if source.kind == "neural":
                return source
        return SourceStats(kind="neural", rounds=0, drafted_tokens=0, accepted_tokens=0)


class LocalEngine:
    """Loads once; `run` serves a set of requests from start to end on a fresh engine."""

    def __init__(
        self,
        folder: Path,
        *,
        slots: int = 4,
        context: int = 2048,
        dtype: torch.dtype = torch.float32,
        mtp: bool = False,
        form: WeightForm = "full",
        exact: bool = True,
    ) -> None:
        """With `mtp` each engine may run with the folder's neural drafter."""
        device = torch.device("cpu")
        torch.set_num_threads(1)
        self.tokenizer = Tokenizer.load(folder)
        self.model = model = load_model(folder, dtype=dtype, device=device, exact=exact, form=form)
        kv = KvCache(
            model.config,
            slots=slots,
            max_context=context,
            dtype=dtype,
            device=device,
            drafter_layers=int(mtp),
        )
        self._module = MtpModule(model, Weights(folder), shortlist=False) if mtp else None
        self.kv = kv
        self.runner = Runner(model, kv, device)
        grammars = GrammarCompiler(folder, model.config.vocab_size, self.tokenizer.stop_ids)
        self._targets = Targets(model.config.vocab_size, device, grammars)
        self._slots = slots
        self._context = context

    def engine(
        self,
        width: int,
        *,
        policy: Policy = "fixed",
        chunk: int = 512,
        host_blocks: int = 0,
        archive: LocalArchive | None = None,
        draft_tokens: int = 0,
    ) -> tuple[Engine, LocalPost, PlanLimits]:
        min_match = 4 if policy == "fixed" else 1
        limits = EngineLimits(
            max_concurrency=self._slots,
            max_waiting=16,
            spec="mtp" if draft_tokens else "off",
            draft_tokens=draft_tokens,
            ngram_draft_tokens=width,
            ngram_policy=policy,
            ngram_min_match=min_match,
            lookup_ngram=0,
        )
        drafting = None
        if width or draft_tokens:
            drafting = DraftSettings(
                policy=policy,
                width=width,
                min_match=min_match,
                neural_width=draft_tokens,
                boundary_ids=self.tokenizer.special_ids,
            )
        post = LocalPost()
        if archive is not None:
            archive.inbound = post.inbound
        self.neural = self._drafter(draft_tokens) if self._module is not None else None
        router = DraftRouter(drafting, neural=self.neural if draft_tokens else None)
        sessions = Sessions(
            archive,
            router,
            ENGINE_ID,
            boundary_ids=self.tokenizer.special_ids,
            vocab_size=self.runner.vocab_size,
        )
        host_bytes = host_blocks * BLOCK_TOKENS * self.kv.bytes_per_token
        engine = Engine(
            self.runner,
            router,
            post,  # type: ignore[arg-type]
            limits,
            intake=Intake(limits, self._context, self.runner.vocab_size, self._targets),
            prefixes=PrefixCache(
                self.kv,
                HostTier(self.kv, host_bytes) if host_blocks else None,
                settle=self.neural.settle if self.neural else None,
            ),
            sessions=sessions,
            neural=self.neural,
        )
        return engine, post, PlanLimits(chunk, max(width, draft_tokens), self._context)

    def _drafter(self, width: int) -> MtpDrafter:
        assert self._module is not None, "this engine was made without mtp"
        return MtpDrafter(self._module, self.kv, width=width, device=torch.device("cpu"))

    def model_logits(self, token_ids: np.ndarray) -> torch.Tensor:
        """fp32 [n, vocab], one pass over all of it in slot 0."""
        count = len(token_ids)
        batch = Batch(
            token_ids=torch.from_numpy(token_ids.astype(np.int64)),
            positions=torch.arange(count),
            rows=(RowSpan(slot=0, start=0, columns=count, offset=0),),
            logit_columns=torch.arange(count),
        )
        return self.model.forward(batch, self.kv).logits

    def run(
        self,
        requests: Sequence[Generate],
        *,
        width: int,
        policy: Policy = "fixed",
        tool_texts: Sequence[str] = (),
        chunk: int = 512,
        archive: LocalArchive | None = None,
        draft_tokens: int = 0,
    ) -> dict[str, Output]:
        engine, post, plan_limits = self.engine(
            width, policy=policy, chunk=chunk, archive=archive, draft_tokens=draft_tokens
        )
        for request in requests:
            post.inbound.append(FromGateway(b"local", request))
            if width:
                post.inbound += self._indexes(request, tool_texts)
        for _ in range(MAX_TURNS):
            engine.turn(plan_limits)
            engine.check()
            if sum(isinstance(m, Finished | Failed) for m in post.sent) == len(requests):
                return _outputs(post.sent)
        raise AssertionError("the engine did not finish")

    def _indexes(self, request: Generate, tool_texts: Sequence[str]) -> list[IndexReady]:
        message = BuildIndex(
            request_id=request.request_id,
            prompt_ids=request.prompt_ids,
            tool_texts=tuple(tool_texts),
            predicted=None,
        )
        return list(Builder(self.tokenizer, self._context).build(message, threading.Event()))


def generate(
    request_id: str,
    prompt_ids: np.ndarray,
    *,
    output: int = 64,
    temperature: float = 0.0,
    seed: int = 11,
    stop_ids: tuple[int, ...] = (),
    queue_deadline_s: float = 600.0,
    session: DraftSession | None = None,
) -> Generate:
    return Generate(
        request_id=request_id,
        prompt_ids=prompt_ids,
        max_output_tokens=output,
        stop_ids=stop_ids,
        sampling=Sampling(temperature=temperature, top_p=1.0, top_k=0, min_p=0.0, seed=seed),
        expect_index=False,
        queue_deadline_s=queue_deadline_s,
        session=session,
    )


def _outputs(sent: Sequence[EngineToGateway]) -> dict[str, Output]:
    tokens: dict[str, list[int]] = defaultdict(list)
    ends: dict[str, Finished | Failed] = {}
    for message in sent:
        match message:
            case OutputTokens():
                assert message.request_id not in ends, "tokens after the terminal message"
                tokens[message.request_id] += message.token_ids.tolist()
            case Finished() | Failed():
                assert message.request_id not in ends, "two terminal messages"
                ends[message.request_id] = message
    return {name: Output(tokens[name], end) for name, end in ends.items()}
