"""The release was installed by the first chart, 0.1.0, and upgraded to this one (fixture ``release``)."""

from __future__ import annotations

import json

from whole_cluster import Database, WholeCluster, eventually

from scenario import one, rows


def test_schedules_go_on_across_the_upgrade(settled: WholeCluster, database: Database) -> None:
    history = json.loads(settled.helm("history", "slotkeeper", "-n", "slotkeeper", "-o", "json"))
    assert (history[0]["chart"], history[0]["status"]) == ("slotkeeper-0.1.0", "superseded")
    deployed_at = history[1]["updated"]

    def done(when: str) -> set[str]:
        found = rows(
            database.connection,
            "select distinct schedule from slotkeeper.job where namespace = 'e2e' and schedule is not null"
            f" and status = 'done' and slot {when} %s::timestamptz", deployed_at,
        )  # fmt: skip
        return {row.schedule for row in found}

    assert done("<")
    everyone = {f"tick-{n}" for n in range(10)}
    eventually(lambda: done(">") == everyone, "every schedule has run under the new chart")
    # One version of each: nothing was stored anew.
    assert one(
        database.connection,
        "select max(version) from slotkeeper.schedule where namespace = 'e2e'",
    ) == 1  # fmt: skip
