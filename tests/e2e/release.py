"""The release that the tests install: which chart, which values, and how."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml
from whole_cluster import ROOT, WholeCluster

HERE = Path(__file__).parent
CHART = ROOT / "charts" / "slotkeeper"
FIRST_CHART = HERE / "fixtures" / "chart-0.1.0"
VALUES = HERE / "values.yaml"
EXAMPLE = ROOT / "examples" / "worker-image"


def install(cluster: WholeCluster, chart: Path, *more: str) -> None:
    """Installs or upgrades the release, and waits until its pods are there."""
    cluster.helm(
        "upgrade", "--install", "slotkeeper", str(chart), "-n", "slotkeeper", "-f", str(VALUES), *more,
        "--wait", "--timeout", "4m",
    )  # fmt: skip


def rendered(cluster: WholeCluster, *more: str) -> list[Any]:
    """The objects of the release, as `helm template` shows them."""
    text = cluster.helm("template", "slotkeeper", str(CHART), "-n", "slotkeeper", "-f", str(VALUES), *more)
    return [item for item in yaml.safe_load_all(text) if item]
