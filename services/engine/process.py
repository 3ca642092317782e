"""Start and end of the engine's process."""

import signal
import threading
import uuid

from kernels.compiled import not_kept
from services.engine.archive_link import ArchiveLink
from services.engine.config import EngineConfig, resolve
from services.engine.device import parse_dtype, resolve_device, set_threads
from services.engine.drafting.cost import RoundCost
from services.engine.drafting.router import DraftRouter
from services.engine.drafting.settings import DraftSettings
from services.engine.grammar import GrammarCompiler
from services.engine.host_tier import HostTier
from services.engine.intake import Intake
from services.engine.kv import KvCache
from services.engine.loop import Engine
from services.engine.models.llama import LlamaModel
from services.engine.models.load import load_model
from services.engine.models.mtp import MtpModule, has_mtp, has_shortlist
from services.engine.models.weight_form import resolve_form
from services.engine.models.weights import Weights
from services.engine.mtp_drafter import MtpDrafter
from services.engine.planner import PlanLimits
from services.engine.post import Post
from services.engine.prefix import PrefixCache
from services.engine.probe import is_exact
from services.engine.runner import Runner
from services.engine.sessions import Sessions
from services.engine.target import Targets
from shared import endpoints, lifecycle, logs, options
from shared.errors import ConfigError
from shared.messages import EngineReady, EngineStatus, ModelFacts
from shared.tokenizer import Tokenizer

KEEP_KERNELS = "each start compiles them anew; NUMBA_CACHE_DIR names a folder to keep them in"


def main(argv: list[str]) -> None:
    config = options.parse(EngineConfig, argv, prog="services.engine", about=__doc__ or "")
    log = logs.configure("engine", level=config.log_level)
    log.info("engine_starting", why="loads the model; the first start also compiles its kernels")
    device = resolve_device(config.device)
    dtype = parse_dtype(config.dtype)
    threads = set_threads(config.threads)
    tokenizer = Tokenizer.load(config.model)
    model = load_model(
        config.model,
        dtype=dtype,
        device=device,
        exact=config.exact != "off",
        form=resolve_form(config.weights, dtype=dtype, device=device),
    )
    weights = Weights(config.model)
    limits, context = resolve(
        config,
        model_id=config.model.name,
        model_context=model.config.max_context,
        drafters=("mtp",) if has_mtp(weights) else (),
    )
    kv = KvCache(
        model.config,
        slots=limits.max_concurrency,
        max_context=context,
        dtype=dtype,
        device=device,
        drafter_layers=1 if config.spec == "mtp" else 0,
    )
    if model.exact and not is_exact(model, kv):
        if config.exact == "on":
            other = "" if dtype == parse_dtype("float32") else "--dtype float32, or "
            raise ConfigError(
                f"--exact on: {device} kernels of {config.dtype} round differently at different "
                f"widths here; use {other}--exact auto to serve all the same"
            )
        log.warning("not_exact", why="kernels round differently at different widths here")
        model.exact = False
    facts = ModelFacts(
        model_id=config.model.name,
        family=model.config.family,
        vocab_size=model.config.vocab_size,
        max_context=context,
        parameters=model.parameters,
        weight_bytes=model.weight_bytes,
        dtype=str(dtype).removeprefix("torch."),
        device=str(device),
        threads=threads,
        exact=model.exact,
        weights=model.weight_form,
    )
    drafting = None
    if limits.ngram_draft_tokens or limits.draft_tokens:
        drafting = DraftSettings(
            policy=limits.ngram_policy,
            width=limits.ngram_draft_tokens,
            min_match=limits.ngram_min_match,
            neural_width=limits.draft_tokens,
            adaptive_neural=config.adaptive_mtp,
            lookup_ngram=limits.lookup_ngram,
            boundary_ids=tokenizer.special_ids,
        )
    channels = endpoints.in_directory(config.sockets)
    ready = EngineReady(instance_id=uuid.uuid4().hex, model=facts, limits=limits)
    idle = EngineStatus(
        running=0,
        waiting=0,
        kv_used_tokens=0,
        kv_total_tokens=limits.max_concurrency * context,
    )
    stopping = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopping.set())
    runner = Runner(model, kv, device)
    draft_width = max(limits.draft_tokens, limits.ngram_draft_tokens)
    curve = runner.rehearse(max(2, min(draft_width + 1, context)))
    per_attended = runner.rehearse_context(context) if drafting is not None else 0.0
    neural = None
    if config.spec == "mtp":
        neural = MtpDrafter(
            _mtp_module(config, model, weights), kv, width=limits.draft_tokens, device=device
        )
        neural.rehearse(runner.any_state())
    if not_kept:
        first = next(iter(not_kept.values()))
        log.warning("kernels_not_kept", kernels=len(not_kept), why=first, hint=KEEP_KERNELS)
    post = Post(channels, ready, idle)
    host = HostTier(kv, limits.host_cache_mib << 20) if limits.host_cache_mib else None
    prefixes = PrefixCache(kv, host, settle=neural.settle if neural else None)
    router = DraftRouter(
        drafting, cost=RoundCost(curve, follows=True, per_attended=per_attended), neural=neural
    )
    archive = None
    if limits.ngram_archive_mib:
        archive = ArchiveLink(
            channels,
            ready.instance_id,
            post.deliver,
            cache_bytes=limits.ngram_archive_mib << 20,
        )
    sessions = Sessions(
        archive,
        router,
        ready.instance_id,
        boundary_ids=tokenizer.special_ids,
        vocab_size=model.config.vocab_size,
    )
    grammars = GrammarCompiler(config.model, facts.vocab_size, tokenizer.stop_ids)
    targets = Targets(facts.vocab_size, device, grammars)
    intake = Intake(limits, context, facts.vocab_size, targets)
    engine = Engine(
        runner,
        router,
        post,
        limits,
        intake=intake,
        prefixes=prefixes,
        sessions=sessions,
        neural=neural,
    )
    shown = {
        "model": facts.model_id,
        "dtype": facts.dtype,
        "weights": facts.weights,
        "weight_mb": round(facts.weight_bytes / 1e6),
        "device": facts.device,
        "threads": threads,
        "exact": "yes" if facts.exact else "no",
        "context": context,
        "spec": config.spec,
    }
    log.info("engine_ready", instance_id=ready.instance_id, **shown)
    lifecycle.announce(channels, "engine", {name: str(fact) for name, fact in shown.items()})
    plan_limits = PlanLimits(
        prefill_chunk=config.prefill_chunk,
        draft_width=draft_width,
        max_context=context,
    )
    try:
        while not stopping.is_set():
            engine.turn(plan_limits)
        engine.shut_down()
    finally:
        if archive is not None:
            archive.close()
        post.close()


def _mtp_module(config: EngineConfig, model: LlamaModel, weights: Weights) -> MtpModule:
    """Raises ConfigError: --lm-head-draft, and the checkpoint has no shortlist."""
    if config.lm_head_draft and not has_shortlist(weights):
        raise ConfigError(f"--lm-head-draft: the drafter of {config.model.name} has no shortlist")
    return MtpModule(model, weights, shortlist=config.lm_head_draft)
