"""`helm uninstall`: the processes go; objects and data stay, and a new installation goes on from them."""

from __future__ import annotations

from release import CHART, install
from whole_cluster import Database, WholeCluster, eventually

from scenario import one, rows


def test_objects_and_data_stay(settled: WholeCluster, database: Database) -> None:
    def uids() -> dict[str, str]:
        found = settled.get("e2e", "jsched")["items"]
        return {item["metadata"]["name"]: item["metadata"]["uid"] for item in found}

    objects = uids()
    settled.helm("uninstall", "slotkeeper", "-n", "slotkeeper", "--wait", "--timeout", "2m")
    eventually(lambda: not settled.pods("slotkeeper", "app.kubernetes.io/name=slotkeeper"), "no pod left")
    assert uids() == objects
    assert not settled.get("slotkeeper", "deployments")["items"]
    connection = database.connection
    gone_at = one(connection, "select clock_timestamp()")
    stored = rows(connection, "select id, watermark from slotkeeper.schedule where namespace = 'e2e' order by id")
    assert len(stored) == len(objects)
    done = one(connection, "select count(*) from slotkeeper.job where status = 'done'")
    assert done > 0

    install(settled, CHART)
    eventually(
        lambda: one(
            connection,
            "select count(distinct schedule) from slotkeeper.job where slot > %s and status = 'done'", gone_at,
        ) >= len(objects),
        "every schedule has run again",
    )  # fmt: skip
    assert uids() == objects
    assert one(connection, "select count(*) from slotkeeper.job where status = 'done'") > done
    # The same rows, further on: nothing was retired or made again.
    again = rows(connection, "select id, watermark from slotkeeper.schedule where namespace = 'e2e' order by id")
    assert [row.id for row in again] == [row.id for row in stored]
    assert all(new.watermark > old.watermark for new, old in zip(again, stored, strict=True))
