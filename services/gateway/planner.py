"""From a request to the messages for engine and indexer: the checks that need the model."""

import asyncio
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import msgspec
import numpy as np

from services.gateway.call_memory import CallMemory
from services.gateway.conversation import Conversation, RawPrompt
from services.gateway.draft_session import NamedSession, SessionNaming
from services.gateway.effort import BUDGETS
from services.gateway.forced_calls import grammar_of as forced_grammar
from services.gateway.output.calls_only import CallsOnly
from services.gateway.output.choice import ToolParser, parser_for
from services.gateway.output.output import OutputParser, PlainParser
from services.gateway.output_memory import OutputMemory
from services.gateway.rendering import messages_of
from services.gateway.request import Request
from shared.errors import BadParameter, ModelNotFound, PromptTooLong
from shared.messages import BuildIndex, EngineReady, Generate, Grammar, Sampling, ThinkingLimit
from shared.sampling import Speculation
from shared.template import ChatTemplate, Prompt
from shared.tokenizer import Tokenizer

NOTHING_SHOWN = Conversation(turns=())
NEVER = -1e9  # logit bias, far below what any model says


@dataclass(frozen=True)
class Plan:
    generate: Generate
    index: BuildIndex | None  # None when the engine copies nothing
    new_parser: Callable[[], OutputParser]  # one for each choice
    stops: tuple[str, ...]
    described: dict[str, Any]  # for the log
    session: NamedSession = NamedSession()

    def choice(self, index: int) -> tuple[Generate, BuildIndex | None]:
        """The messages of one choice. The first is what a request for one alone would be; the
        others draw with the seeds that follow its own, so each can be asked for again alone."""
        if index == 0:
            return self.generate, self.index
        request_id = f"{self.generate.request_id}.{index}"
        seed = (self.generate.sampling.seed + index) % 2**64
        sampling = msgspec.structs.replace(self.generate.sampling, seed=seed)
        generate = msgspec.structs.replace(self.generate, request_id=request_id, sampling=sampling)
        if self.index is None:
            return generate, None
        return generate, msgspec.structs.replace(self.index, request_id=request_id)


@dataclass(frozen=True)
class Planner:
    model_id: str
    tokenizer: Tokenizer
    template: ChatTemplate
    tool_parser: ToolParser
    sampling: Sampling  # the defaults
    default_max_tokens: int
    queue_timeout_s: float
    sessions: SessionNaming
    calls: CallMemory
    outputs: OutputMemory

    async def plan(
        self, request: Request, request_id: str, headers: Mapping[str, str], engine: EngineReady
    ) -> Plan:
        """`headers` are the HTTP request's, where sessions may be named.

        Raises:
            RequestError: the request asks for what cannot be done.
        """
        self.check_model(request)
        context = engine.model.max_context
        try:
            prompt = await self.prompt_of(request, context)
            room = context - len(prompt.ids)
            if room < 1:
                raise _too_long(context, len(prompt.ids))
        except PromptTooLong as error:
            error.param = request.prompt_param
            raise
        limit = min(self._asked_limit(request), room)
        sampling = self._sampling_of(request)
        shown = request.prompt if isinstance(request.prompt, Conversation) else NOTHING_SHOWN
        index = BuildIndex(
            request_id=request_id,
            prompt_ids=prompt.ids,
            tool_texts=shown.tool_texts,
            user_texts=shown.user_texts,
            call_arguments=shown.call_arguments,
            predicted=request.predicted,
        )
        copies = engine.limits.ngram_draft_tokens > 0 or engine.limits.lookup_ngram > 0
        plan = Plan(
            generate=Generate(
                request_id=request_id,
                prompt_ids=prompt.ids,
                max_output_tokens=limit,
                stop_ids=self._stop_ids_of(request),
                sampling=self._without_end(sampling) if request.wishes.ignore_eos else sampling,
                expect_index=copies,
                queue_deadline_s=self.queue_timeout_s,
                min_output_tokens=min(request.wishes.min_tokens, limit),
                top_logprobs=request.wishes.top_logprobs,
                thinking=self._thinking_of(request, prompt),
                # large schemas take a while
                grammar=await asyncio.to_thread(self._grammar_of, request, prompt),
                speculation=request.wishes.speculation,
                cache_salt=request.wishes.cache_salt,
            ),
            index=index if copies else None,
            new_parser=partial(self._parser_for, request, prompt),
            stops=request.stops,
            described=self._described(request, len(prompt.ids), limit, sampling),
        )
        generate, session = await self.sessions.apply(plan.generate, request, headers)
        if generate.session is not None and request.choices > 1:
            raise BadParameter("a draft session goes on with one answer, so n must be 1", param="n")
        described = plan.described | {"draft_session": session.session_id}
        return replace(plan, generate=generate, session=session, described=described)

    def _asked_limit(self, request: Request) -> int:
        """Output tokens, before the context cuts them. Raises BadParameter: too few to stop at."""
        limit = request.max_tokens or self.default_max_tokens
        if request.wishes.min_tokens > limit:
            raise BadParameter(
                f"min_tokens is more than the output limit of {limit} tokens", param="min_tokens"
            )
        return limit

    def _stop_ids_of(self, request: Request) -> tuple[int, ...]:
        """Raises BadParameter: a token that is none."""
        asked = request.wishes.stop_token_ids
        for token_id in asked:
            if token_id >= self.tokenizer.vocab_size:
                raise BadParameter(f"{token_id} is no token of this model", param="stop_token_ids")
        own = () if request.wishes.ignore_eos else self.tokenizer.stop_ids
        return tuple(dict.fromkeys((*own, *asked)))

    def _without_end(self, sampling: Sampling) -> Sampling:
        """What a client's bias does to the model's own end tokens is overruled."""
        own = set(self.tokenizer.stop_ids)
        kept = [pair for pair in sampling.logit_bias if pair[0] not in own]
        never = [(token_id, NEVER) for token_id in self.tokenizer.stop_ids]
        return msgspec.structs.replace(sampling, logit_bias=(*kept, *never))

    def check_model(self, request: Request) -> None:
        """Raises ModelNotFound."""
        if not request.any_model and request.model not in (None, self.model_id):
            raise ModelNotFound(
                f"The model '{request.model}' does not exist; this server has '{self.model_id}'",
                param="model",
                logged=f"a model was asked for that is not '{self.model_id}'",
            )

    async def prompt_of(self, request: Request, context: int) -> Prompt:
        """Raises RequestError: the prompt cannot be made, or is longer than any context."""
        if isinstance(request.prompt, RawPrompt):
            given = request.prompt.text
            self._refuse_hopeless(len(given), context, is_text=isinstance(given, str))
            return await asyncio.to_thread(self._raw, request.prompt)
        return await self._render(request, request.prompt, context)

    async def _render(self, request: Request, conversation: Conversation, context: int) -> Prompt:
        abilities = self.template.abilities
        tools = conversation.tools
        if tools and not abilities.renders_tools:
            raise BadParameter("this model's chat template cannot show tools", param="tools")
        characters = sum(len(turn.text) for turn in conversation.turns)
        self._refuse_hopeless(characters, context, is_text=True)

        def encode() -> Prompt:
            messages = messages_of(self.calls.restore(conversation), abilities)
            prompt = self.template.prepare(messages, tools, request.template_options)
            ids = self.outputs.restore(prompt.ids, request.wishes.cache_salt)
            return prompt._replace(ids=ids)

        # a long prompt takes a while, in which other streams must go on
        return await asyncio.to_thread(encode)

    def _parser_for(self, request: Request, prompt: Prompt) -> OutputParser:
        if isinstance(request.prompt, RawPrompt):
            return PlainParser()
        parser = parser_for(
            self.tool_parser,
            request.prompt.tools,
            thinks=self.template.abilities.thinks,
            opens_thinking=prompt.opens_thinking,
        )
        return CallsOnly(parser) if request.wishes.forced_calls else parser

    def _raw(self, prompt: RawPrompt) -> Prompt:
        if isinstance(prompt.text, str):
            ids = self.tokenizer.encode_prompt(prompt.text)
        elif max(prompt.text) >= self.tokenizer.vocab_size:
            raise BadParameter("a token is outside of the vocabulary", param="prompt")
        else:
            ids = np.array(prompt.text, dtype=np.int32)
        return Prompt(ids, opens_thinking=False)

    def _refuse_hopeless(self, length: int, context: int, *, is_text: bool) -> None:
        """Refuses what cannot fit whatever its tokens are, before counting them costs seconds."""
        fewest = length // (self.tokenizer.longest_token if is_text else 1)
        if fewest > context:
            raise _too_long(context, fewest, at_least=True)

    def _sampling_of(self, request: Request) -> Sampling:
        seed = secrets.randbits(64) if request.seed is None else request.seed % 2**64
        bias = request.wishes.logit_bias
        for token_id, _ in bias:
            if token_id >= self.tokenizer.vocab_size:
                raise BadParameter(f"{token_id} is no token of this model", param="logit_bias")
        return msgspec.structs.replace(
            self.sampling, seed=seed, logit_bias=bias, **request.sampling
        )

    def _grammar_of(self, request: Request, prompt: Prompt) -> Grammar | None:
        """The answer's grammar begins behind the reasoning, if the prompt has opened one."""
        text, forced = request.wishes.grammar, request.wishes.forced_calls
        if forced is not None and isinstance(request.prompt, Conversation):
            tools = request.prompt.tools
            text = forced_grammar(forced, tools, self.tool_parser, self._is_token)
        if text is None:
            return None
        marks = self.tokenizer.thinking_ids
        thinks = prompt.opens_thinking and marks is not None
        return Grammar(text=text, after_id=marks[1] if marks and thinks else None)

    def _is_token(self, text: str) -> bool:
        return len(self.tokenizer.encode_prompt(text)) == 1

    def _thinking_of(self, request: Request, prompt: Prompt) -> ThinkingLimit | None:
        """Raises BadParameter: a budget for a model that does not think."""
        wishes = request.wishes
        budget = wishes.thinking_budget
        if budget is None and wishes.effort and "reasoning_effort" not in self.template.source:
            budget = BUDGETS.get(wishes.effort)
        if budget is None:
            return None
        marks = self.tokenizer.thinking_ids
        if marks is None and not wishes.needs_thinking:
            return None
        if marks is None:
            raise BadParameter(
                "this model has no thinking marks to close", param="ninfer.thinking_budget"
            )
        start_id, end_id = marks
        return ThinkingLimit(
            budget_tokens=budget,
            start_id=start_id,
            end_id=end_id,
            forced_ids=(end_id,),
            is_open=prompt.opens_thinking,
        )

    def _described(
        self, request: Request, prompt_tokens: int, limit: int, sampling: Sampling
    ) -> dict[str, Any]:
        """For the log."""
        shown = msgspec.to_builtins(sampling)
        return {
            "model": self.model_id,
            "n": request.choices,
            "prompt_tokens": prompt_tokens,
            "output_limit": limit,
            "requested_output_tokens": self._asked_limit(request),
            "requested_output_tokens_source": "client" if request.max_tokens else "server_default",
            "sampling": {name: value for name, value in shown.items() if name != "type"},
            "speculation": _narrowed(request.wishes.speculation),
        }


def _narrowed(wanted: Speculation) -> dict[str, int] | None:
    """What the request wants of drafting; None if it leaves all to the server."""
    fields = ((name, getattr(wanted, name)) for name in wanted.__struct_fields__)
    return {name: value for name, value in fields if value is not None} or None


def _too_long(context: int, tokens: int, *, at_least: bool = False) -> PromptTooLong:
    shown = f"at least {tokens}" if at_least else f"{tokens}"
    return PromptTooLong(
        f"This model's maximum context length is {context} tokens, "
        f"but the prompt has {shown} tokens and needs room for an answer.",
        prompt_tokens=tokens,
        limit=context,
    )
