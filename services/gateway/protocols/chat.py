"""`POST /v1/chat/completions`."""

from collections.abc import Sequence

from services.gateway.protocols import chat_request
from services.gateway.protocols.chat_body import ChatBody
from services.gateway.protocols.chat_reply import ChatReply
from services.gateway.protocols.choices_reply import ChoicesReply
from services.gateway.protocols.openai_errors import error_body
from services.gateway.protocols.protocol import Head
from services.gateway.request import Request


class Chat:
    name = "openai_chat_completions"
    id_prefix = "chatcmpl-"
    parse = staticmethod(chat_request.parse)
    error = staticmethod(error_body)

    @staticmethod
    def reply(request: Request, head: Head) -> ChatReply:
        assert isinstance(request.body, ChatBody)
        options = request.body.stream_options
        with_usage = bool(options is not None and options.include_usage)
        with_timings = bool(request.body.timings_per_token)
        return ChatReply(head, with_usage=with_usage, with_timings=with_timings)

    def choices(self, request: Request, heads: Sequence[Head]) -> ChoicesReply:
        return ChoicesReply([self.reply(request, head) for head in heads])
