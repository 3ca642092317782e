"""`POST /v1/messages`."""

from services.gateway.protocols import messages_reply, messages_request
from services.gateway.protocols.messages_reply import MessagesReply
from services.gateway.protocols.protocol import Head
from services.gateway.request import Request


class Messages:
    name = "anthropic_messages"
    id_prefix = "msg_"
    parse = staticmethod(messages_request.parse)
    error = staticmethod(messages_reply.error_body)

    @staticmethod
    def reply(request: Request, head: Head) -> MessagesReply:
        # the name is a label, which clients expect back
        return MessagesReply(head, request.model or head.model_id)
