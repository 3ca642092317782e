"""The engine's turn: receive, plan, propose, launch, verify, commit, send."""

import time
from typing import assert_never

import numpy as np
import structlog
import torch

from services.engine import planner
from services.engine.accept import verify
from services.engine.drafting.draft import Draft
from services.engine.drafting.router import Ask, DraftRouter
from services.engine.intake import Intake
from services.engine.mtp_drafter import MtpDrafter
from services.engine.post import ArchiveAnswer, FromGateway, GatewayGone, Inbound, Post
from services.engine.prefix import PrefixCache
from services.engine.request import Request
from services.engine.runner import ModelFault, Pass, Runner
from services.engine.sessions import Ended, Sessions
from services.engine.table import RequestTable
from shared.messages import (
    Cancel,
    EngineLimits,
    EngineStatus,
    Failed,
    FailureCode,
    Finished,
    FinishReason,
    Generate,
    GenerationStats,
    IndexReady,
    OutputTokens,
    Stop,
)

IDLE_BLOCK_S = 0.25
# A model that fails every pass is broken, not unlucky; the supervisor starts a fresh engine.
FAULTS_IN_A_ROW = 3


class Engine:
    """Owns every request between `Generate` and its one terminal message."""

    def __init__(
        self,
        runner: Runner,
        drafters: DraftRouter,
        post: Post,
        limits: EngineLimits,
        *,
        intake: Intake,
        prefixes: PrefixCache,
        sessions: Sessions,
        neural: MtpDrafter | None = None,
    ) -> None:
        self._runner = runner
        self._drafters = drafters
        self._post = post
        self._limits = limits
        self._intake = intake
        self._table = RequestTable(prefixes)
        self._sessions = sessions
        self._neural = neural
        self._faults = 0
        self._log = structlog.get_logger(service="engine")

    def turn(self, plan_limits: planner.PlanLimits) -> None:
        """One round. Blocks for a moment when there is nothing to do."""
        self._receive(0.0 if self._table else self._sessions.patience_s(IDLE_BLOCK_S))
        for admitted in self._table.admit(time.monotonic()):
            self._sessions.bind(admitted)
        rows = planner.plan([r.progress() for r in self._table.running], plan_limits)
        if rows:
            began_s = time.monotonic()
            try:
                drafts = self._propose(rows)
                result = self._runner.launch(rows, drafts, self._table)
            except ModelFault as exc:
                self._fail_rows(rows, exc)
            else:
                self._faults = 0
                self._drafters.end_pass(result.forward_s)
                # a cancel that came during the pass wins over what the pass found
                self._receive(0.0)
                for row in rows:
                    self._finish_row(row, drafts.get(row.request_id), result, began_s)
        self._send_status()
        self._post.flush()

    # -- receive -------------------------------------------------------------------------------

    def _receive(self, block_s: float) -> None:
        for message in self._post.receive(block_s):
            self._handle(message)
        self._send_ended(self._sessions.overdue())
        now_s = time.monotonic()
        for request in self._table.waiting:
            if now_s - request.tally.received_s > request.generate.queue_deadline_s:
                self._fail(request, "deadline_passed", "no row was free before the queue deadline")

    def _handle(self, inbound: Inbound) -> None:
        match inbound:
            case FromGateway(gateway, message):
                self._handle_gateway(gateway, message)
            case GatewayGone(gateway):
                for request in [r for r in self._table if r.gateway == gateway]:
                    self._end(request, "cancelled")
            case IndexReady():
                self._drafters.add_index(inbound)
            case ArchiveAnswer(answer):
                self._send_ended(self._sessions.hear(answer))
            case _:
                assert_never(inbound)

    def _handle_gateway(self, gateway: bytes, message: Generate | Cancel | Stop) -> None:
        if isinstance(message, Generate):
            self._accept(gateway, message)
            return
        request = self._table.get(message.request_id)
        if request is None:  # it ended before this arrived, or never was
            return
        match message:
            case Cancel():
                self._end(request, "cancelled")
            case Stop(output_tokens=output_tokens):
                request.ledger.truncate_output(min(output_tokens, request.ledger.output_len))
                request.tally.truncate(output_tokens)
                self._end(request, "stop")
            case _:
                assert_never(message)

    def _accept(self, gateway: bytes, generate: Generate) -> None:
        taken = self._intake.take(gateway, generate, self._table)
        if isinstance(taken, Failed):
            self._drafters.release(generate.request_id)
            self._post.send(gateway, taken)
            return
        self._table.add(taken)
        self._drafters.begin(
            generate.request_id,
            expect_index=generate.expect_index,
            wanted=generate.speculation,
            record=generate.record_drafts,
        )

    # -- propose, verify, commit -----------------------------------------------------------------

    def _propose(self, rows: tuple[planner.RowPlan, ...]) -> dict[str, Draft]:
        """Drafts for the decoding rows that have some; they may be narrower than the room."""
        columns = sum(row.columns for row in rows)
        attended = sum(row.columns * row.start for row in rows)
        self._drafters.begin_pass(columns, len(rows), attended)
        asks = [
            Ask(row.request_id, request.ledger, row.draft_room, request.tally)
            for row in rows
            if row.draft_room and (request := self._open(row.request_id)).ledger.output_len
        ]
        drafts = {}
        for request_id, draft in self._drafters.propose_all(asks).items():
            request = self._open(request_id)
            # what the request's grammar forbids could never be accepted
            admitted = draft.cut(request.target.admitted(draft.token_ids))
            if admitted is not None:
                drafts[request_id] = admitted
        return drafts

    def _finish_row(
        self, row: planner.RowPlan, draft: Draft | None, result: Pass, began_s: float
    ) -> None:
        request = self._table.get(row.request_id)
        if request is None:  # cancelled during the pass
            return
        if not row.samples:
            request.computed = row.start + row.columns
            self._follow(request, row.start, result.hidden[row.request_id])
            return
        first_position = len(request.ledger)
        logits = result.logits[row.request_id]
        draft_ids = draft.token_ids if draft else ()
        verdict = verify(draft_ids, request.target.tokens(logits, draft_ids, first_position))
        decoding = request.ledger.output_len > 0
        kept, stopped = request.commit(verdict.committed, verdict.accepted)
        self._follow(request, row.start, result.hidden[row.request_id])
        accepted = min(verdict.accepted, len(kept))
        self._drafters.observe(row.request_id, request.ledger, draft, accepted)
        now_s = time.monotonic()
        if decoding:  # the prompt's own pass is prefill
            request.tally.count_round(draft, accepted, request.ledger.output_len - len(kept))
            request.tally.forward_s += result.forward_s
            request.tally.host_s += now_s - began_s - result.forward_s
        request.tally.last_token_s = now_s
        if not decoding:
            request.tally.first_token_s = now_s
        message = OutputTokens(
            request_id=row.request_id,
            token_ids=np.array(kept, dtype=np.int32),
            copied=accepted,
            logprobs=request.target.logprobs(logits, kept),
        )
        self._post.send(request.gateway, message)
        if stopped:
            self._end(request, "stop")
        elif request.remaining == 0:
            self._end(request, request.limited_by)

    def _follow(self, request: Request, start: int, hidden: torch.Tensor) -> None:
        """The neural drafter gets the states of all columns that were committed."""
        if self._neural is not None:
            assert request.slot is not None
            committed = hidden[: request.computed - start]
            self._neural.follow(
                request.request_id, request.slot, request.ledger, start=start, hidden=committed
            )

    def _open(self, request_id: str) -> Request:
        request = self._table.get(request_id)
        assert request is not None
        return request

    # -- terminal messages -----------------------------------------------------------------------

    def _end(self, request: Request, reason: FinishReason) -> None:
        tally = request.tally
        stats = GenerationStats(
            prompt_tokens=request.ledger.prompt_len,
            output_tokens=request.ledger.output_len,
            computed_prefill_tokens=min(request.computed, request.ledger.prompt_len)
            - request.reused,
            cached_tokens=request.reused,
            cached_from=request.reused_from,
            cached_until=request.reuse_end,
            decode_passes=tally.decode_passes,
            timings=tally.timings(time.monotonic()),
            speculative=tally.speculative(self._limits),
        )
        drafts = self._drafters.record_of(request.request_id)
        finished = Finished(
            request_id=request.request_id, reason=reason, stats=stats, drafts=drafts
        )
        ended = self._sessions.end(request, finished)
        self._close(request)
        if ended is not None:
            self._send_ended([(request.gateway, ended)])

    def _send_ended(self, ended: list[Ended]) -> None:
        for gateway, finished in ended:
            self._post.send(gateway, finished)

    def _fail(self, request: Request, code: FailureCode, text: str) -> None:
        self._close(request)
        self._post.send(
            request.gateway, Failed(request_id=request.request_id, code=code, message=text)
        )

    def _close(self, request: Request) -> None:
        if self._neural is not None:
            self._neural.settle(request.request_id)
            self._neural.release(request.request_id)
        self._table.remove(request)
        self._sessions.drop(request.request_id)
        self._drafters.release(request.request_id)

    def _fail_rows(self, rows: tuple[planner.RowPlan, ...], exc: ModelFault) -> None:
        self._faults += 1
        self._log.error("model_fault", error=str(exc), rows=len(rows), in_a_row=self._faults)
        for row in rows:
            request = self._open(row.request_id)
            if self._neural is not None:
                # the drafter does not catch up any more, so nobody may go on from here
                self._neural.release(request.request_id)
                request.computed = 0
            self._fail(request, "server_error", f"the model failed: {exc}")
        if self._faults >= FAULTS_IN_A_ROW:
            self._post.flush()
            raise exc

    def _send_status(self) -> None:
        running = self._table.running
        self._post.status = EngineStatus(
            running=len(running),
            waiting=len(self._table.waiting),
            kv_used_tokens=sum(r.computed for r in running),
            kv_total_tokens=self._limits.max_concurrency * self._intake.context,
        )

    def shut_down(self) -> None:
        """Cancels what is open, so that every request has its terminal message."""
        for request in list(self._table):
            self._end(request, "cancelled")
        self._send_ended(self._sessions.give_up())
        self._post.flush()

    def check(self) -> None:
        self._table.check()
        if self._neural is not None:
            self._neural.check([request.request_id for request in self._table.running])
