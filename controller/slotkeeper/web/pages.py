"""What each page shows, as values: read in one transaction, and the same for the page and for the JSON API.

From a filter and a reading to values; no HTTP and no markup.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial

from slotkeeper.store.web import DashboardRun, DashboardSchedule, Lane, Reading, WorkerProcess
from slotkeeper.web.heat import Day, first_hour, heat_map
from slotkeeper.web.history import MOST_READ, Cursor, Page, read_back
from slotkeeper.web.parameters import ENDED, LIVE, RunFilter, ScheduleFilter
from slotkeeper.web.upcoming import Rule, UpcomingSlot, rule_of

#: Rows of one page.
SCHEDULES_PER_PAGE, RUNS_PER_PAGE, WORKERS_SHOWN = 100, 50, 200
UPCOMING = 10
#: A heat map covers the first of these numbers of days in which at most so many slots lie.
_HEAT_DAYS, _HEAT_SLOTS = (14, 7, 3, 1), 50_000
#: Of a lane's live rows at most so many are counted.
_LANE_ROWS = 5_000
_INSTANT = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class ListedSchedule:
    """A schedule in the list."""

    schedule: DashboardSchedule
    rule: Rule


@dataclass(frozen=True, slots=True)
class SchedulesPage:
    """``counts``: schedules of the database per (state, health). ``next``: the key of the last one, if more follow."""

    moment: datetime
    schedules: Sequence[ListedSchedule]
    counts: Mapping[tuple[str, str], int]
    next: tuple[str, str, str] | None


@dataclass(frozen=True, slots=True)
class SchedulePage:
    """One schedule: its next slots, its heat map (today first) and its runs, the latest slot first."""

    moment: datetime
    schedule: DashboardSchedule
    rule: Rule
    upcoming: Sequence[UpcomingSlot]
    heat: Sequence[Day]
    runs: Page[DashboardRun]


@dataclass(frozen=True, slots=True)
class RunsPage:
    """Live runs, the oldest first, and what has ended, the latest first; None: the filter excludes them.

    ``live_next`` is the id after which live runs have not been shown yet.
    """

    moment: datetime
    live: Sequence[DashboardRun] | None
    live_next: int | None
    ended: Page[DashboardRun] | None


@dataclass(frozen=True, slots=True)
class QueuesPage:
    """Lanes and worker processes."""

    moment: datetime
    lanes: Sequence[Lane]
    workers: Sequence[WorkerProcess]


def schedules_page(reading: Reading, wanted: ScheduleFilter) -> SchedulesPage:
    """A page of the list of schedules."""
    found = reading.schedules(
        namespace=wanted.namespace, name=wanted.name, state=wanted.state, health=wanted.health, after=wanted.after,
        limit=SCHEDULES_PER_PAGE + 1,
    )  # fmt: skip
    shown = found[:SCHEDULES_PER_PAGE]
    return SchedulesPage(
        moment=reading.moment,
        schedules=[ListedSchedule(schedule, rule_of(schedule)) for schedule in shown],
        counts=reading.schedule_counts(),
        next=shown[-1].key if len(found) > len(shown) else None,
    )


def schedule_page(reading: Reading, cluster: str, namespace: str, name: str, wanted: RunFilter) -> SchedulePage | None:
    """One schedule; None when there is none. Of ``wanted`` the status and the place count."""
    schedule = reading.schedule(cluster, namespace, name)
    if schedule is None:
        return None
    rule = rule_of(schedule)
    return SchedulePage(
        moment=reading.moment,
        schedule=schedule,
        rule=rule,
        upcoming=rule.upcoming(schedule.next_slot, UPCOMING, reading.moment) if schedule.state == "Active" else [],
        heat=_heat(reading, schedule.schedule_id),
        runs=_runs_of(reading, schedule.schedule_id, wanted),
    )


def runs_page(reading: Reading, wanted: RunFilter) -> RunsPage:
    """A page of runs. A place in one of the two lists leaves the other one out."""
    live, live_next, ended = None, None, None
    if wanted.before is None and wanted.status not in ENDED:
        live, live_next = _live(reading, wanted)
    if not wanted.after and wanted.status not in LIVE:
        ended = _ended(reading, wanted)
    return RunsPage(reading.moment, live, live_next, ended)


def dead_page(reading: Reading, wanted: RunFilter) -> RunsPage:
    """A page of the dead-letter list, the latest first."""
    return RunsPage(reading.moment, None, None, _ended(reading, replace(wanted, status="dead")))


def queues_page(reading: Reading) -> QueuesPage:
    """Every lane, and the worker processes."""
    return QueuesPage(reading.moment, reading.lanes(_LANE_ROWS), reading.workers(WORKERS_SHOWN))


def _heat(reading: Reading, schedule: int) -> list[Day]:
    for days in _HEAT_DAYS:
        after = first_hour(reading.moment, days) - _INSTANT
        if reading.runs_count(schedule, after, reading.moment, _HEAT_SLOTS + 1) <= _HEAT_SLOTS:
            break
    return heat_map(reading.slots(schedule, after), reading.moment, days)


def _live(reading: Reading, wanted: RunFilter) -> tuple[list[DashboardRun], int | None]:
    until = reading.live_until(wanted.after, MOST_READ)
    if until is None:
        return [], None
    status = wanted.status if wanted.status in LIVE else None
    found = reading.live(
        wanted.after, until, status=status, namespace=wanted.namespace, limit=RUNS_PER_PAGE + 1
    )  # fmt: skip
    if len(found) > RUNS_PER_PAGE:
        return found[:RUNS_PER_PAGE], found[RUNS_PER_PAGE - 1].run
    return found, until if reading.live_until(until, 1) is not None else None


def _ended(reading: Reading, wanted: RunFilter) -> Page[DashboardRun]:
    def read(after: datetime, at: Cursor, limit: int) -> list[DashboardRun]:
        return reading.ended(
            after, at.moment, before_id=at.id, status=wanted.status, namespace=wanted.namespace, limit=limit
        )

    return read_back(
        wanted.before,
        reading.moment,
        reading.kept_since(),
        RUNS_PER_PAGE,
        count=reading.ended_count,
        read=read,
        cursor_of=lambda run: Cursor(run.finished_at or reading.moment, run.id),
    )


def _runs_of(reading: Reading, schedule: int, wanted: RunFilter) -> Page[DashboardRun]:
    first = reading.first_slot(schedule)
    if first is None:
        return Page([], None)

    def read(after: datetime, at: Cursor, limit: int) -> list[DashboardRun]:
        return reading.runs(schedule, after, at.moment, before_id=at.id, status=wanted.status, limit=limit)

    return read_back(
        wanted.before,
        reading.moment,
        first - _INSTANT,
        RUNS_PER_PAGE,
        count=partial(reading.runs_count, schedule),
        read=read,
        cursor_of=lambda run: Cursor(run.slot or reading.moment, run.id),
    )
