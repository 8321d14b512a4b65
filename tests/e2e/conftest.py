"""One whole cluster for the session: node, images, Postgres outside, the release, and the examples. Root.

A node that runs already (`make cluster-node-up`) is used and kept; else one is started, and ended with the session.
SLOTKEEPER_E2E=short leaves out what is not install, run and kill; SLOTKEEPER_E2E=keda runs the tests with KEDA alone.
"""

from __future__ import annotations

import logging
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from load import Load
from release import CHART, EXAMPLE, FIRST_CHART, HERE, install
from whole_cluster import ROOT, Database, WholeCluster, eventually, new_folder, script

from scenario import one

PROFILE = os.environ.get("SLOTKEEPER_E2E", "")
assert PROFILE in ("", "short", "keda"), f"SLOTKEEPER_E2E={PROFILE}: write short, keda, or nothing"
UPGRADES = not PROFILE
if not UPGRADES:
    collect_ignore = ["test_first_chart.py", "test_rolling_upgrade.py", "test_uninstall.py"]
_log = logging.getLogger(__name__)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """The release goes last; all else may come in any order."""
    chosen = [item for item in items if _is_chosen(item)]
    config.hook.pytest_deselected(items=[item for item in items if item not in chosen])
    items[:] = chosen
    items.sort(key=lambda item: item.path.name == "test_uninstall.py")


def _is_chosen(item: pytest.Item) -> bool:
    if item.get_closest_marker("keda") or PROFILE == "keda":
        return PROFILE == "keda" and item.get_closest_marker("keda") is not None
    return PROFILE != "short" or item.get_closest_marker("long") is None


@pytest.fixture(scope="session")
def cluster() -> Iterator[WholeCluster]:
    """The node, clean."""
    folder = Path(os.environ.get("TMPDIR", "/tmp")) / f"slotkeeper-cluster-node-{os.getuid()}"
    kept = (folder / "pid" / "kubelet").exists()
    try:
        kubeconfig = script("up", "--node")
        cluster = WholeCluster(Path(kubeconfig).parent)
        cluster.clean()
        yield cluster
    finally:
        if not kept:
            script("down", "--node")


@pytest.fixture(scope="session")
def images(cluster: WholeCluster) -> None:
    """slotkeeper:dev and the example's worker image, built and loaded."""
    folder = new_folder("slotkeeper-images-")
    try:
        for tag, source in (("slotkeeper:dev", ROOT), ("billing-worker:dev", EXAMPLE)):
            archive = folder / f"{tag.partition(':')[0]}.tar"
            script("image", tag, str(source), str(archive))
            script("load", str(archive))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def database(cluster: WholeCluster) -> Iterator[Database]:
    """Outside the cluster; with a table for what handlers note."""
    folder = new_folder("slotkeeper-e2e-")
    database = Database(folder)
    try:
        yield database
    finally:
        database.stop()
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def release(cluster: WholeCluster, images: None, database: Database) -> Iterator[WholeCluster]:
    """The release `slotkeeper` in the namespace of that name, at work.

    The long profile installs the first chart, lets it work, and upgrades to this one.
    """
    for namespace in ("slotkeeper", "e2e", "billing"):
        cluster.new_namespace(namespace)
    logins = {
        "owner": database.add_login("e2e_owner", "superuser"),
        "controller": database.add_login("e2e_controller"),
        "worker": database.add_login("e2e_worker"),
    }
    for login, dsn in logins.items():
        cluster.kubectl(
            "-n", "slotkeeper", "create", "secret", "generic", f"slotkeeper-{login}-login", f"--from-literal=dsn={dsn}"
        )
    cluster.kubectl("-n", "slotkeeper", "create", "configmap", "e2e-handlers", f"--from-file={HERE / 'handlers.py'}")
    database.connection.execute((HERE / "attempt.sql").read_text())
    try:
        install(cluster, FIRST_CHART if UPGRADES else CHART)
        schedules = (HERE / "schedules.yaml").read_text()
        cluster.kubectl("-n", "e2e", "apply", "-f", "-", given=schedules)
        eventually(
            lambda: one(database.connection, "select count(*) from slotkeeper.job where status = 'done'") > 10,
            "runs done by worker pods",
        )
        if UPGRADES:
            install(cluster, CHART)
        yield cluster
    finally:
        _say_what_happened(cluster)


@pytest.fixture
def settled(release: WholeCluster) -> WholeCluster:
    """The release, all of whose pods are there."""
    release.settled("slotkeeper")
    return release


@pytest.fixture
def load(settled: WholeCluster, database: Database) -> Iterator[Load]:
    """Runs enqueued from outside while the test goes on, beside the ten schedules' slot each second."""
    load = Load(database)
    load.start()
    try:
        yield load
    finally:
        load.stop()


def _say_what_happened(cluster: WholeCluster) -> None:
    """For the log of a session that failed: what runs, and what was said last."""
    for command in (
        ["get", "pods", "-A", "-o", "wide"],
        ["get", "events", "-A", "--sort-by=.lastTimestamp"],
        ["-n", "slotkeeper", "logs", "-l", "app.kubernetes.io/name=slotkeeper", "--tail=20", "--prefix"],
    ):
        try:
            _log.info("kubectl %s\n%s", " ".join(command), cluster.kubectl(*command, check=False)[-6000:])
        except (OSError, subprocess.SubprocessError) as error:
            _log.info("kubectl %s: %s", " ".join(command), error)
