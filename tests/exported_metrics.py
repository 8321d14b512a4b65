"""The names of the series that slotkeeper exports, for whoever reads them: alerts and dashboards."""

from __future__ import annotations

import re

from slotkeeper.metrics.catalogue import DEFINITIONS
from slotkeeper.metrics.scaling import PoolNumbers
from slotkeeper.metrics.scaling_collector import ScalingCollector

NAME = re.compile(r"(?<![\w:])slotkeeper_[a-z_]+(?=[^\w(]|$)")


def exported() -> dict[str, tuple[str, ...] | None]:
    """Series by name, and their own labels; None where the labels are not known here."""
    series: dict[str, tuple[str, ...] | None] = {}
    for definition in DEFINITIONS:
        suffixes = ("_bucket", "_sum", "_count") if definition.kind == "histogram" else ("",)
        labels = (*definition.labels, "le") if definition.kind == "histogram" else definition.labels
        series.update({definition.name + suffix: labels for suffix in suffixes})
    # Without a database the families are empty, but they have their names.
    families = ScalingCollector(PoolNumbers("host=/nonexistent")).collect()
    return {**series, **{family.name: ("namespace", "pool") for family in families}}


def named(expression: str) -> set[str]:
    """The series that an expression reads."""
    return set(NAME.findall(expression))
