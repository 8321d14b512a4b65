"""The chart's values for a trial: a Postgres that comes with the release, and nothing else."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import pytest
import yaml
from release import CHART
from whole_cluster import WholeCluster, eventually, new_folder, script

#: The release of the other tests owns the CRD and watches every namespace; this one has a database of its own.
VALUES = {
    "image": {"repository": "slotkeeper", "tag": "dev", "pullPolicy": "Never"},
    "crds": {"install": False},
    "controller": {"replicas": 1, "namespaces": ["trial"], "clusterName": "trial"},
    "workers": {"pools": [{"name": "default", "allow": ["command"], "pollSeconds": 1}]},
}
SCHEDULE = """
apiVersion: slotkeeper.dev/v1beta1
kind: JobSchedule
metadata: {name: hello, namespace: trial}
spec: {every: {periodSeconds: 10}, command: [date]}
"""


@pytest.fixture
def postgres_image(cluster: WholeCluster) -> str:
    """Made from Debian packages and loaded into the node."""
    folder = new_folder("slotkeeper-trial-")
    try:
        name = script("trial-postgres", str(folder / "postgres.tar"))
        script("load", str(folder / "postgres.tar"))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return name


@pytest.fixture
def trial(settled: WholeCluster, postgres_image: str) -> Iterator[WholeCluster]:
    """Pod Security "restricted" is enforced in its namespace."""
    settled.new_namespace("trial")
    folder = new_folder("slotkeeper-trial-")
    values = folder / "values.yaml"
    values.write_text(yaml.safe_dump({**VALUES, "trialPostgres": {"enabled": True, "image": postgres_image}}))
    try:
        settled.helm("install", "trial", str(CHART), "-n", "trial", "-f", str(values), "--wait", "--timeout", "3m")
        yield settled
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        settled.kubectl("-n", "trial", "delete", "jsched", "--all", check=False)
        settled.kubectl("delete", "namespace", "trial", "--wait=false", check=False)


def ask(cluster: WholeCluster, statement: str) -> str:
    """What the trial's own Postgres answers."""
    return cluster.kubectl(
        "-n", "trial", "exec", "trial-slotkeeper-trial-postgres-0", "--",
        "psql", "-h", "/var/run/postgresql", "-U", "slotkeeper", "-d", "slotkeeper", "-At", "-c", statement,
    ).strip()  # fmt: skip


@pytest.mark.long
def test_a_trial_needs_no_database_of_ones_own(trial: WholeCluster) -> None:
    trial.kubectl("apply", "-f", "-", given=SCHEDULE)
    eventually(
        lambda: int(ask(trial, "select count(*) from slotkeeper.job where schedule = 'hello' and status = 'done'")) > 2,
        "slots done by the trial's worker",
    )
    trial.helm("test", "trial", "-n", "trial", "--timeout", "2m")
