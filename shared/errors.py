"""Every error that crosses a process or reaches a client.

    NinferError
    ├── RequestError            4xx, the client can fix it
    │   ├── BadParameter        400 invalid_request_error, names the field
    │   ├── PromptTooLong       400 context_length_exceeded
    │   ├── Unauthorized        401 invalid_api_key
    │   ├── Forbidden           403 forbidden
    │   ├── ModelNotFound       404 model_not_found
    │   ├── NotFound            404 not_found
    │   ├── MethodNotAllowed    405 method_not_allowed
    │   ├── HeadersTooLarge     431 headers_too_large
    │   ├── BodyTooLarge        413 request_too_large
    │   ├── UnsupportedMedia    415 unsupported_media_type
    │   └── Overloaded          429 rate_limit_exceeded
    └── ServiceError            5xx, ours
        ├── EngineFault         500 server_error
        ├── EngineDead          503 engine_dead
        │   └── ShuttingDown    503 shutting_down
        ├── ArchiveAbsent       503 archive_absent
        └── DeadlinePassed      504 deadline_passed

`ConfigError` stands apart: it stops a start, it never answers a request. `CheckpointError` is the
same for model folders (`ninfer-model` and the engine's loader raise it).
"""

from typing import ClassVar


class NinferError(Exception):
    """An error with a stable `code` for clients and logs, and an HTTP `status`."""

    status: ClassVar[int] = 500
    code: ClassVar[str] = "server_error"

    # The log's sentence, where `message` may hold a client's text outside of quotation marks.
    logged: str | None = None

    def __init__(
        self, message: str, *, param: str | None = None, logged: str | None = None
    ) -> None:
        super().__init__(message)
        self.message = message
        self.param = param
        self.logged = logged


class RequestError(NinferError):
    status = 400
    code = "invalid_request_error"


class BadParameter(RequestError):
    pass


class BodyTimeout(RequestError):
    status = 408
    code = "request_timeout"


class PromptTooLong(RequestError):
    code = "context_length_exceeded"

    def __init__(
        self, message: str, *, prompt_tokens: int | None = None, limit: int | None = None
    ) -> None:
        super().__init__(message, param="messages")
        self.prompt_tokens = prompt_tokens  # at least so many
        self.limit = limit


class Unauthorized(RequestError):
    status = 401
    code = "invalid_api_key"


class Forbidden(RequestError):
    status = 403
    code = "forbidden"


class ModelNotFound(RequestError):
    status = 404
    code = "model_not_found"


class NotFound(RequestError):
    status = 404
    code = "not_found"


class MethodNotAllowed(RequestError):
    status = 405
    code = "method_not_allowed"

    def __init__(self, message: str, allowed: str) -> None:
        super().__init__(message)
        self.allowed = allowed  # the header Allow


class HeadersTooLarge(RequestError):
    status = 431
    code = "headers_too_large"


class BodyTooLarge(RequestError):
    status = 413
    code = "request_too_large"


class UnsupportedMedia(RequestError):
    status = 415
    code = "unsupported_media_type"


class Overloaded(RequestError):
    status = 429
    code = "rate_limit_exceeded"


class ServiceError(NinferError):
    pass


class EngineFault(ServiceError):
    pass


class EngineDead(ServiceError):
    status = 503
    code = "engine_dead"


class ShuttingDown(EngineDead):
    code = "shutting_down"


class ArchiveAbsent(ServiceError):
    status = 503
    code = "archive_absent"


class DeadlinePassed(ServiceError):
    status = 504
    code = "deadline_passed"


class ConfigError(Exception):
    """A start-up that cannot go on; the text is one sentence that says what to change."""


class CheckpointError(ConfigError):
    """A model folder, GGUF file or fetched package that cannot be used."""


def by_code(code: str, message: str) -> NinferError:
    """The exception for a `Failed.code` that came over the wire; unknown codes are ours (500)."""
    kinds = (PromptTooLong, Overloaded, EngineDead, DeadlinePassed, BadParameter)
    kind = next((kind for kind in kinds if kind.code == code), EngineFault)
    error: NinferError = kind(message)
    error.logged = f"the engine ended the request: {kind.code}"
    return error
