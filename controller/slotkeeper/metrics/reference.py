"""Writes docs/metric-names.md: ``python -m slotkeeper.metrics.reference > docs/metric-names.md``.

The catalogue is the source; a test holds the page equal to it.
"""

from __future__ import annotations

import sys

from slotkeeper.metrics.catalogue import DEFINITIONS, Definition

_HEAD = """\
<!-- Written by `python -m slotkeeper.metrics.reference > docs/metric-names.md`. -->

# Every metric

What they are for, and how to scrape them: [metrics.md](metrics.md). The numbers for autoscaling, `slotkeeper_pool_…`,
are on `/metrics` of the controller too.
"""
_SECTIONS = (
    ("Controller and worker", "`/metrics` of both.", ("controller", "worker")),
    ("Worker", "`/metrics` of the worker.", ("worker",)),
    ("Controller", "`/metrics` of the controller.", ("controller",)),
    ("Schedules", "`/metrics/schedules` of the controller.", ("schedules",)),
)


def reference() -> str:
    """The page."""
    parts = [_HEAD]
    for title, about, where in _SECTIONS:
        rows = [_row(definition) for definition in DEFINITIONS if _of(definition, where)]
        parts.append(
            f"\n## {title}\n\n{about}\n\n| name | type | labels | |\n| --- | --- | --- | --- |\n" + "".join(rows)
        )
    return "".join(parts)


def _of(definition: Definition, where: tuple[str, ...]) -> bool:
    """What several endpoints show stands where the first two of them share it."""
    own = definition.where if definition.where != ("controller", "worker", "schedules") else ("controller", "worker")
    return own == where


def _row(definition: Definition) -> str:
    labels = ", ".join(f"`{label}`" for label in definition.labels)
    return f"| `{definition.name}` | {definition.kind} | {labels} | {definition.text} |\n"


if __name__ == "__main__":
    sys.stdout.write(reference())
