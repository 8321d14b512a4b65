"""Checks what the tables say against each other, and against what handlers wrote down when they began.

Reads only. Facts, not bounds of time.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from datetime import datetime, timedelta
from typing import Any

import psycopg

from scenario import one, rows


def slots_without_exactly_one_outcome(
    connection: psycopg.Connection[Any], *, period: timedelta, after: datetime, until: datetime
) -> list[tuple[str, datetime, int]]:
    """(schedule, slot, how many records) of every slot of every schedule in (after, until] that has not exactly one."""
    found = Counter(
        (row.schedule, row.slot)
        for row in rows(
            connection, "select schedule, slot from slotkeeper.job where slot > %s and slot <= %s", after, until
        )
    )
    names = [row.name for row in rows(connection, "select name from slotkeeper.schedule")]
    wanted = []
    for name in names:
        slot = datetime.fromtimestamp(
            (after.timestamp() // period.total_seconds() + 1) * period.total_seconds(), after.tzinfo
        )
        while slot <= until:
            wanted.append((name, slot))
            slot += period
    assert wanted, "no slot in the window"
    wrong = [(*key, found[key]) for key in wanted if found[key] != 1]
    return wrong + [(*key, found[key]) for key in found.keys() - set(wanted)]


def beginnings_without_explanation(
    connection: psycopg.Connection[Any], handled: list[dict[str, Any]], killed: set[int]
) -> list[str]:
    """What handlers did that the tables do not explain.

    An attempt begins at most once. A run begins again only after its process was killed, and the tables say so
    (LeaseLost). Every run that is done was begun by the attempt that is on record.
    """
    problems = []
    by_attempt = Counter((line["run"], line["attempt"]) for line in handled if line["what"] == "began")
    problems += [f"run {run} attempt {attempt} began {n} times" for (run, attempt), n in by_attempt.items() if n > 1]
    lost = {
        (row.run, row.attempt)
        for row in rows(connection, "select run, attempt from slotkeeper.run_error where kind = 'LeaseLost'")
    }
    by_run: dict[int, list[dict[str, Any]]] = defaultdict(list)
    for line in handled:
        if line["what"] == "began":
            by_run[line["run"]].append(line)
    for run, beginnings in by_run.items():
        for line in sorted(beginnings, key=lambda line: line["attempt"])[:-1]:
            if line["pid"] not in killed:
                problems.append(f"run {run} began again, but attempt {line['attempt']} was not in a killed process")
            if (run, line["attempt"]) not in lost:
                problems.append(f"run {run} began again, but attempt {line['attempt']} has no lost lease on record")
    for row in rows(connection, "select id, attempt, token from slotkeeper.run_done where outcome = 0"):
        if not [line for line in by_run[row.id] if line["attempt"] == row.attempt and line["token"] == str(row.token)]:
            problems.append(f"run {row.id} is done by attempt {row.attempt}, which never began")
    return problems


def live_runs(connection: psycopg.Connection[Any], until: datetime) -> int:
    """Runs of slots up to ``until`` that have no outcome yet."""
    return int(one(connection, "select count(*) from slotkeeper.run where slot <= %s", until))
