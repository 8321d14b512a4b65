"""`helm upgrade` that replaces every pod, under load: nothing is lost, doubled or late."""

from __future__ import annotations

from load import Load
from release import CHART, install
from whole_cluster import WholeCluster


def test_nothing_is_lost_doubled_or_late(settled: WholeCluster, load: Load) -> None:
    before = set(settled.pods("slotkeeper", "app.kubernetes.io/name=slotkeeper"))
    install(
        settled, CHART,
        "--set-string", f"controller.podAnnotations.replaced-at={load.since.timestamp():.0f}",
        "--set-string", f"workers.defaults.podAnnotations.replaced-at={load.since.timestamp():.0f}",
    )  # fmt: skip
    settled.settled("slotkeeper")
    after = set(settled.pods("slotkeeper", "app.kubernetes.io/name=slotkeeper"))
    assert not before & after
    assert len(after) == len(before) == 4
    assert load.finished() == []
