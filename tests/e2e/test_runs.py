"""Installed by Helm: objects become runs, and pods do them. With the example of a team's own image and release."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from release import CHART, EXAMPLE
from whole_cluster import Database, WholeCluster, eventually

from scenario import one, rows


def test_runs_are_done_by_worker_pods(settled: WholeCluster, database: Database) -> None:
    pods = settled.pods("slotkeeper", "slotkeeper.dev/pool=noted")
    since = one(database.connection, "select clock_timestamp()")
    eventually(
        lambda: {
            row.pod for row in rows(database.connection, "select pod from e2e.attempt where ended_at > %s", since)
        } == set(pods),
        f"each of {pods} has done a run",
    )  # fmt: skip


def test_objects_say_what_kubectl_waits_for(settled: WholeCluster) -> None:
    settled.kubectl("-n", "e2e", "wait", "--for=condition=Ready", "jsched", "--all", "--timeout=30s")


WRITES = """
import errno, os, pathlib
def probe(folder):
    try:
        pathlib.Path(folder, "probe").touch()
        return "written"
    except OSError as error:
        return errno.errorcode[error.errno]
print(os.getuid(), *(probe(folder) for folder in ("/", "/app", "/opt/slotkeeper", "/tmp")))
"""


def test_pods_may_do_nothing_but_their_work(settled: WholeCluster) -> None:
    """Pod Security "restricted" is enforced in the namespace; beyond it, only /tmp is not read-only (EROFS)."""
    for pod in settled.pods("slotkeeper", "app.kubernetes.io/name=slotkeeper"):
        said = settled.kubectl("-n", "slotkeeper", "exec", pod, "--", "python", "-c", WRITES)
        assert said.split() == ["65532", "EROFS", "EROFS", "EROFS", "written"], pod


def test_the_charts_own_test(settled: WholeCluster) -> None:
    if not (CHART / "templates" / "tests").exists():
        pytest.skip("the chart has no tests yet")
    settled.helm("test", "slotkeeper", "-n", "slotkeeper", "--logs", "--timeout", "2m")


def test_a_team_installs_its_own_workers(settled: WholeCluster, database: Database, tmp_path: Path) -> None:
    """As a person with no rights outside the namespace, by the commands of the example's page."""
    dsn = database.add_login("billing")
    database.connection.execute("grant slotkeeper_worker to billing")
    statements = (EXAMPLE / "README.md").read_text().partition("```sql")[2].partition("```")[0]
    database.connection.execute(statements)
    settled.kubectl("create", "rolebinding", "team", "-n", "billing", "--clusterrole=admin", "--user=team")
    settled.kubectl(
        "--as=team", "-n", "billing", "create", "secret", "generic", "slotkeeper-login", f"--from-literal=dsn={dsn}"
    )
    settled.helm(
        "--kube-as-user", "team", "install", "billing", str(CHART), "-n", "billing",
        "-f", str(EXAMPLE / "values.yaml"), "--wait", "--timeout", "2m",
    )  # fmt: skip
    settled.kubectl("--as=team", "-n", "billing", "apply", "-f", str(EXAMPLE / "schedules.yaml"))

    closed = eventually(
        lambda: (
            len(found := rows(database.connection, "select * from billing.closed_period order by ends_at")) >= 2
            and found
        ),
        "two periods closed",
    )
    assert [row.starts_at for row in closed[1:]] == [row.ends_at for row in closed[:-1]]
    eventually(
        lambda: one(
            database.connection,
            "select count(*) from slotkeeper.job"
            " where schedule = 'zones' and namespace = 'billing' and status = 'done'",
        ),
        "a command done",
    )
    (pod,) = settled.pods("billing", "slotkeeper.dev/pool=billing")
    said = settled.kubectl("-n", "billing", "logs", pod)
    outputs = [json.loads(line) for line in said.splitlines() if '"output"' in line]
    assert [line for line in outputs if line["schedule"] == "billing/zones"], said[-2000:]
