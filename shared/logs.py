"""structlog set-up: readable lines on a terminal, one JSON object a line otherwise.

Events have a fixed name and typed fields; nothing is logged per token, and no prompt text, output
text or key ever is.
"""

import logging
import sys
from typing import Any

import structlog

LEVELS = ("debug", "info", "warning", "error")


def configure(service: str, *, level: str = "info") -> structlog.stdlib.BoundLogger:
    """Logs to stderr. Returns the service's logger, bound to its name."""
    pretty = sys.stderr.isatty()
    render: Any = (
        structlog.dev.ConsoleRenderer(pad_event_to=18)
        if pretty
        else structlog.processors.JSONRenderer()
    )
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="%H:%M:%S" if pretty else "iso", utc=not pretty),
            structlog.processors.format_exc_info,
            render,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelName(level.upper())),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )
    logger: structlog.stdlib.BoundLogger = structlog.get_logger(service=service)
    return logger
