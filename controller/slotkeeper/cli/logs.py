"""Log lines on stderr, as text for people or JSON for machines; lines of other libraries look the same."""

from __future__ import annotations

import logging
import sys

import structlog


def set_up_logs(log_format: str, level: str) -> None:
    """Once, at the start of a process; ``log_format`` is text or json."""
    shared: list[structlog.typing.Processor] = [
        structlog.stdlib.add_log_level,
        structlog.stdlib.ExtraAdder(),
        structlog.processors.TimeStamper(fmt="iso", utc=True, key="time"),
    ]
    structlog.configure(
        processors=[structlog.stdlib.filter_by_level, *shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    )
    renderer: structlog.typing.Processor = (
        structlog.processors.JSONRenderer()
        if log_format == "json"
        else structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty(), pad_event_to=14, timestamp_key="time")
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                structlog.processors.format_exc_info if log_format == "json" else _keep,
                renderer,
            ],
        )
    )
    # kopf tells of each try of a request; what comes of them the pump tells, and the metrics.
    handler.addFilter(lambda record: not (record.name.startswith("kopf.") and record.module == "api"))
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(level.upper())
    logging.getLogger("psycopg").setLevel(logging.ERROR)
    logging.getLogger("kopf").setLevel(logging.WARNING)  # else it tells of each event, with all its settings
    logging.getLogger("asyncio").setLevel(logging.WARNING)


def _keep(_: object, __: str, event: structlog.typing.EventDict) -> structlog.typing.EventDict:
    return event
