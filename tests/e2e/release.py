"""The release that the tests install: which chart, which values, and how."""

from __future__ import annotations

from pathlib import Path

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
