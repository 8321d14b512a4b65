"""One next slot, beside croniter and cronsim, and 100,000 of them: CPU time of one process, in pairs.

Each round asks all three for the same number of following slots of one expression in one zone, one after another, so
that whatever slows the machine slows all three. Ours keeps the compiled timetable and is asked for the slot after an
instant, as the ticker does; the other two iterate, which is the quickest way they have. Where the clock changes, their
rules differ from ours, so slots are not compared here (`tests/unit/timetable` does that).
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from datetime import UTC, datetime
from itertools import cycle, islice
from statistics import median

from croniter import croniter
from cronsim import CronSim

from slotkeeper.timetable import cron_timetable, load_zone

# What people write, from every minute to once in years, with and without changes of the clock.
SCHEDULES = (
    ("* * * * *", "Etc/UTC"),
    ("*/5 * * * *", "Europe/Berlin"),
    ("0 * * * *", "America/New_York"),
    ("*/30 * * * *", "Australia/Lord_Howe"),
    ("30 2 * * *", "Europe/Berlin"),
    ("0 0 * * *", "Africa/Cairo"),
    ("15 8-18 * * 1-5", "America/New_York"),
    ("0 9 * * 1", "Asia/Kolkata"),
    ("45 4,10,16,22 * * *", "Etc/UTC"),
    ("0 6 1 * *", "Europe/London"),
    ("0 12 13 * 5", "Australia/Sydney"),
    ("0 0 1 1,4,7,10 *", "Pacific/Auckland"),
    ("0 3 31 12 *", "America/Sao_Paulo"),
    ("0 0 29 2 *", "Etc/UTC"),
)
ROUNDS = int(os.environ.get("BENCH_REPETITIONS", "15"))
#: Slots asked for in one measurement: enough for the clock's resolution, few enough to stay within the same minute.
SLOTS = 200
START = datetime(2026, 1, 1, 0, 0, 30, tzinfo=UTC)
LIBRARIES = ("slotkeeper", "croniter", "cronsim")


def following(text: str, zone: str) -> dict[str, Callable[[int], None]]:
    """For each library a function that works out so many following slots."""
    timetable = cron_timetable([text], zone)
    local = START.astimezone(load_zone(zone))

    def ours(count: int) -> None:
        slot: datetime | None = START
        for _ in range(count):
            assert slot is not None
            slot = timetable.next(slot)

    def by_croniter(count: int) -> None:
        iterator = croniter(text, local)
        for _ in range(count):
            iterator.get_next(datetime)

    def by_cronsim(count: int) -> None:
        iterator = CronSim(text, local)
        for _ in range(count):
            next(iterator)

    return dict(zip(LIBRARIES, (ours, by_croniter, by_cronsim), strict=True))


def microseconds(work: Callable[[int], None], count: int) -> float:
    """CPU time per slot."""
    began = time.process_time_ns()
    work(count)
    return (time.process_time_ns() - began) / 1000 / count


def main() -> None:
    """Prints one JSON line per schedule and one for all of them."""
    ours: list[float] = []
    ratios: dict[str, list[float]] = {"croniter": [], "cronsim": []}
    for text, zone in SCHEDULES:
        count = 20 if text.endswith("2 *") else SLOTS  # 200 leap days would leave the calendar
        ask = following(text, zone)
        for work in ask.values():
            work(count)  # once, so that nobody pays for reading the zone
        rounds = [{name: microseconds(work, count) for name, work in ask.items()} for _ in range(ROUNDS)]
        each = {name: median(times[name] for times in rounds) for name in LIBRARIES}
        ours += [times["slotkeeper"] for times in rounds]
        paired = {name: median(times[name] / times["slotkeeper"] for times in rounds) for name in ratios}
        for name, ratio in paired.items():
            ratios[name].append(ratio)
        print(
            json.dumps(
                {
                    "what": "next slot",
                    "schedule": text,
                    "zone": zone,
                    "microseconds": {name: round(each[name], 2) for name in LIBRARIES},
                    "times_ours": {name: round(ratio, 1) for name, ratio in paired.items()},
                }
            ),
            flush=True,
        )
    print(
        json.dumps(
            {
                "what": "next slot, all schedules",
                "median_microseconds": round(median(ours), 2),
                "median_times_ours": {name: round(median(found), 1) for name, found in ratios.items()},
                "least_times_ours": {name: round(min(found), 1) for name, found in ratios.items()},
                "cpu_seconds_of_100000": round(median(hundred_thousand() for _ in range(3)), 3),
            }
        )
    )


def hundred_thousand() -> float:
    """CPU seconds of the next slot of 100,000 schedules, as a ticker meets them: another one each time."""
    timetables = [cron_timetable([text], zone) for text, zone in SCHEDULES]
    began = time.process_time()
    for timetable in islice(cycle(timetables), 100_000):
        timetable.next(START)
    return time.process_time() - began


if __name__ == "__main__":
    main()
