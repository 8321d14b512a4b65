"""Schedules: what Kubernetes accepts and a JobSchedule writes otherwise, and what is refused by name."""

from __future__ import annotations

import csv
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from slotkeeper.convert import NoteKind, Options, Verdict
from slotkeeper.timetable import load_zone
from unit.convert.kubernetes_cron import fires
from unit.convert.objects import NOW, converted, cronjob, findings_of, notes_of, spec_of, times_of
from unit.timetable.oracle import utc

with (Path(__file__).parents[1] / "timetable" / "data" / "expressions.csv").open(newline="") as stream:
    EXPRESSIONS = list(csv.DictReader(stream))


@pytest.mark.parametrize("row", EXPRESSIONS, ids=lambda row: row["id"])
def test_expressions_found_in_public(row: dict[str, str]) -> None:
    zone = {} if row["zone"] == "(none)" else {"timeZone": row["zone"]}
    obj = cronjob(row["expression"], **zone, meta={"creationTimestamp": "2026-11-30T03:04:05Z"})
    conversion = converted(obj, Options(keep_clock_changes=True))
    if row["verdict"].startswith("refuse"):
        assert conversion.verdict is Verdict.REFUSED
        assert all(finding.startswith("spec.schedule: ") for finding in findings_of(conversion))
        return
    changed = row["verdict"].startswith("convert")
    assert conversion.verdict is (Verdict.CHANGED if changed else Verdict.SAME), notes_of(conversion)
    expected = [utc(row[f"next_{n}_utc"]) for n in (1, 2, 3) if row[f"next_{n}_utc"]]
    if not expected and row["expression"].startswith("@every"):
        expected = [utc("2026-12-01T03:04:05Z") + timedelta(hours=6 * n) for n in range(3)]
    limit = max(len(expected), 1)
    assert times_of(conversion).window(NOW - timedelta(seconds=1), utc("2040-01-01T00:00Z"), limit=limit) == expected


@pytest.mark.parametrize(
    ("schedule", "cron"),
    [
        ("@Midnight", "0 0 * * *"),
        ("@yearly", "0 0 1 1 *"),
        ("? ? * ? *", "* * * * *"),
        ("0/1 * * * ?", "0/1 * * * *"),
        ("?/20 0 * * ?", "*/20 0 * * *"),
        ("5-5 1 * * MON-mon", "5 1 * * MON"),
        ("0,,30 0 * * *", "0,30 0 * * *"),
        ("  0   4  * * * ", "0 4 * * *"),
        ("*/60 */24 * * *", "*/60 */24 * * *"),
    ],
)
def test_c016_c012_the_same_times_in_other_letters(schedule: str, cron: str) -> None:
    conversion = converted(cronjob(schedule))
    assert spec_of(conversion)["cron"] == [cron]
    assert conversion.verdict is Verdict.SAME


def test_c016_another_spelling_is_told() -> None:
    assert any("'? 1 * * *' is written '* 1 * * *'" in note for note in notes_of(converted(cronjob("? 1 * * *"))))
    assert not any("is written" in note for note in notes_of(converted(cronjob("@daily"))))


@pytest.mark.parametrize(
    ("schedule", "cron", "period"),
    [
        ("*/90 * * * *", "0 * * * *", 5400),
        ("*/10080 * * * *", "0 * * * *", 604800),
        ("0 */36 * * *", "0 0 * * *", 129600),
        ("10/90 * * * *", "10 * * * *", 5400),
        ("0 8-20/25 * * *", "0 8 * * *", 90000),
        ("0 0 */32 * *", "0 0 1 * *", 2764800),
        ("0 0 1 */13 *", "0 0 1 1 *", None),
        ("0 0 * * */8", "0 0 * * 0", None),
    ],
)
def test_c008_a_step_larger_than_the_field_keeps_the_times_of_kubernetes(
    schedule: str, cron: str, period: int | None
) -> None:
    conversion = converted(cronjob(schedule))
    assert spec_of(conversion)["cron"] == [cron]
    assert conversion.verdict is Verdict.CHANGED
    (note,) = notes_of(conversion, NoteKind.CHANGED)
    assert "is larger than the field" in note
    assert (f"every.periodSeconds: {period}" in note) if period else ("periodSeconds" not in note)


def test_c002_the_days_stay_those_of_kubernetes() -> None:
    table = times_of(converted(cronjob("0 0 */2 * 1")))
    assert table.count(utc("2025-12-31T23:59Z"), utc("2026-01-14T23:59Z")) == 8
    # Kubernetes takes a large step as one value, and the field stays restricted.
    table = times_of(converted(cronjob("0 0 */40 * 1")))
    assert table.window(utc("2026-06-01T00:00Z"), utc("2026-07-02T00:00Z")) == [
        utc(f"2026-{day}T00:00Z") for day in ("06-08", "06-15", "06-22", "06-29", "07-01")
    ]


def test_c035_a_zone_prefix_moves() -> None:
    conversion = converted(cronjob("TZ=America/New_York 0 9 * * *"))
    assert spec_of(conversion)["cron"] == ["0 9 * * *"]
    assert spec_of(conversion)["timeZone"] == "America/New_York"
    assert conversion.verdict is Verdict.CHANGED
    table = times_of(conversion)
    assert table.next(utc("2026-07-01T00:00Z")) == utc("2026-07-01T13:00Z")
    assert table.next(utc("2026-01-01T00:00Z")) == utc("2026-01-01T14:00Z")


def test_c035_a_prefix_and_another_zone_are_refused_with_both_names() -> None:
    conversion = converted(cronjob("TZ=America/New_York 0 9 * * *", timeZone="Europe/London"))
    assert conversion.verdict is Verdict.REFUSED
    (told,) = findings_of(conversion)
    assert "America/New_York" in told
    assert "Europe/London" in told
    same = converted(cronjob("CRON_TZ=Europe/London 0 9 * * *", timeZone="Europe/London"))
    assert spec_of(same)["timeZone"] == "Europe/London"


@pytest.mark.parametrize(
    ("spec", "field", "word"),
    [
        ({"timeZone": "Europe/Berln"}, "spec.timeZone", "Europe/Berlin"),
        ({"timeZone": "Local"}, "spec.timeZone", "machine"),
        ({"timeZone": ""}, "spec.timeZone", "empty"),
        ({"schedule": "TZ=Local 0 0 * * *"}, "spec.schedule", "machine"),
    ],
)
def test_a_zone_that_is_none_is_refused(spec: dict[str, Any], field: str, word: str) -> None:
    schedule = spec.pop("schedule", "0 0 * * *")
    (finding,) = converted(cronjob(schedule, **spec)).findings
    assert finding.field == field
    assert word in str(finding)


def test_without_a_zone_it_is_utc_or_what_the_cluster_has() -> None:
    conversion = converted(cronjob("0 0 * * *"))
    assert spec_of(conversion)["timeZone"] == "Etc/UTC"
    assert any("kube-controller-manager" in note for note in notes_of(conversion))
    conversion = converted(cronjob("0 0 * * *"), Options(time_zone="Asia/Tokyo"))
    assert spec_of(conversion)["timeZone"] == "Asia/Tokyo"
    named = converted(cronjob("0 0 * * *", timeZone="Europe/Rome"), Options(time_zone="Asia/Tokyo"))
    assert spec_of(named)["timeZone"] == "Europe/Rome"
    assert not any("kube-controller-manager" in note for note in notes_of(named))


def _every(duration: str, **meta: Any) -> Any:
    return converted(cronjob(f"@every {duration}", meta=meta))


@pytest.mark.parametrize(
    ("duration", "seconds"), [("6h", 21600), ("1h30m", 5400), ("1.5h", 5400), ("90m", 5400), ("10s999ms", 10)]
)
def test_c012_every_is_counted_from_the_creation(duration: str, seconds: int) -> None:
    conversion = _every(duration, creationTimestamp="2026-01-01T00:17:00Z")
    spec = spec_of(conversion)
    assert spec["every"] == {"periodSeconds": seconds, "anchorTime": "2026-01-01T00:17:00Z"}
    assert {"cron", "timeZone"}.isdisjoint(spec)
    assert conversion.verdict is Verdict.CHANGED
    assert any("2026-01-01T00:17:00Z" in note for note in notes_of(conversion, NoteKind.CHANGED))


def test_every_keeps_the_zone_in_which_runs_are_told_their_time() -> None:
    assert spec_of(converted(cronjob("@every 6h", timeZone="Europe/Berlin")))["timeZone"] == "Europe/Berlin"


def test_every_without_a_creation_time_says_where_to_get_one() -> None:
    conversion = _every("6h")
    assert spec_of(conversion)["every"] == {"periodSeconds": 21600}
    (note,) = notes_of(conversion, NoteKind.CHANGED)
    assert "creationTimestamp" in note
    assert "kubectl get" in note


def test_every_whose_rhythm_has_moved_is_told() -> None:
    obj = cronjob("@every 6h", meta={"creationTimestamp": "2026-01-01T00:17:00Z"})
    obj["status"] = {"lastScheduleTime": "2026-11-29T12:17:00Z"}
    assert not any("last run" in note for note in notes_of(converted(obj)))
    obj["status"] = {"lastScheduleTime": "2026-11-29T11:00:00Z"}
    assert any("Its last run, 2026-11-29T11:00:00Z, was not on that grid" in note for note in notes_of(converted(obj)))


@pytest.mark.parametrize("duration", ["", "6", "h", "1d", "5s", "-6h", "9000h", "1h 30m", "1h30"])
def test_every_that_is_no_period_is_refused(duration: str) -> None:
    conversion = _every(duration, creationTimestamp="2026-01-01T00:17:00Z")
    assert conversion.verdict is Verdict.REFUSED
    assert findings_of(conversion)[0].startswith("spec.schedule: ")


@pytest.mark.parametrize(
    "schedule", ["@reboot", "@fortnightly", "0 22-6 * * *", "0 0 L * *", "61 * * * *", "", ",", "0"]
)
def test_what_neither_takes_is_refused(schedule: str) -> None:
    conversion = converted(cronjob(schedule))
    assert conversion.verdict is Verdict.REFUSED
    assert conversion.findings[0].field == "spec.schedule"


def test_a_time_in_a_gap_and_in_an_overlap_is_told_and_may_be_kept() -> None:
    obj = cronjob("30 2 * * *", timeZone="Europe/Berlin")
    conversion = converted(obj)
    assert conversion.verdict is Verdict.CHANGED
    assert "daylightSaving" not in spec_of(conversion)
    skipped, repeated, *later = notes_of(conversion, NoteKind.CHANGED)
    assert "2027-03-28 01:00Z Europe/Berlin skips 02:00–03:00" in skipped
    assert skipped.endswith("the CronJob has no run at 2027-03-28T01:00Z")
    assert repeated.endswith("the CronJob runs also at 2027-10-31T01:30Z")
    assert len(later) == 2, "two years, not more"
    assert any("--keep-clock-changes" in note for note in notes_of(conversion))
    kept = converted(obj, Options(keep_clock_changes=True))
    assert kept.verdict is Verdict.SAME
    assert spec_of(kept)["daylightSaving"] == {"skippedTime": "Skip", "repeatedTime": "RunTwice"}
    assert times_of(kept).window(utc("2027-03-27T12:00Z"), utc("2027-03-29T12:00Z")) == [utc("2027-03-29T00:30Z")]


@pytest.mark.parametrize(
    ("schedule", "zone"),
    [
        ("30 * * * *", "Europe/Berlin"),
        ("0 */2 * * *", "Europe/Berlin"),
        ("30 2 * * *", "Asia/Kolkata"),
        ("0 12 * * *", "Europe/Berlin"),
    ],
)
def test_times_that_no_change_touches_are_the_same(schedule: str, zone: str) -> None:
    conversion = converted(cronjob(schedule, timeZone=zone))
    assert conversion.verdict is Verdict.SAME
    assert "daylightSaving" not in spec_of(conversion)


@pytest.mark.parametrize(
    ("schedule", "zone", "written"),
    [
        ("30 2 * * *", "Europe/Berlin", True),
        # No change is foreseen, but a law may bring one back.
        ("30 2 * * *", "America/Sao_Paulo", True),
        ("30 * * * *", "Europe/Berlin", False),
        ("30 2 * * *", "Etc/UTC", False),
    ],
)
def test_what_is_kept_is_written(schedule: str, zone: str, written: bool) -> None:
    conversion = converted(cronjob(schedule, timeZone=zone), Options(keep_clock_changes=True))
    assert ("daylightSaving" in spec_of(conversion)) is written
    assert conversion.verdict is Verdict.SAME


def test_a_hint_needs_a_zone_that_moves_the_time() -> None:
    def warnings(schedule: str, zone: str, at: str = "19:25", **spec: Any) -> list[str]:
        annotations = {"zone": zone, "at": at}
        return [
            note
            for note in notes_of(
                converted(cronjob(schedule, meta={"annotations": annotations}, **spec)), NoteKind.WARNING
            )
            if "metadata.annotations" in note
        ]

    assert warnings("25 17 * * *", "Europe/Berlin")
    assert not warnings("25 17 * * *", "Asia/Tokyo")
    assert not warnings("25 17 * * *", "team/a")
    assert not warnings("25 17 * * *", "Europe/Berlin", timeZone="Europe/Berlin")
    # Where the local date is another one, the day fields would have to move too: no expression is offered.
    (told,) = warnings("25 23 * * 1-5", "Europe/Berlin", at="00:25")
    assert "cron:" not in told
    (told,) = warnings("25 17 * * 1-5", "Europe/Berlin")
    assert 'cron: ["25 19 * * 1-5"]' in told


@pytest.mark.parametrize(
    "schedule",
    [
        "*/٩٩ * * * *",
        "0/٣ * * * *",
        "*/" + "9" * 5000 + " * * * *",
        "@every " + "9" * 5000 + "h",
        "TZ=" + "x" * 5000 + " * * * * *",
    ],
)
def test_digits_of_other_scripts_and_thousands_of_digits_are_refused(schedule: str) -> None:
    (told,) = findings_of(converted(cronjob(schedule)))
    assert told.startswith("spec.schedule: ")
    assert len(told) < 300


def _list(low: int, high: int) -> str:
    """Values of which no three follow each other."""
    return ",".join(str(value) for value in range(low, high + 1) if value % 3)


_MINUTES, _HOURS, _DAYS = _list(0, 59), _list(0, 23), _list(1, 31)
_EVERY_MINUTE = ",".join(map(str, range(60)))


@pytest.mark.parametrize("zone", ["Europe/Berlin", "America/New_York"])
@pytest.mark.parametrize(
    ("schedule", "single"),
    [
        (f"{_EVERY_MINUTE} 2 * * *", True),
        (f"{_EVERY_MINUTE},07,59,07,0-30/3 * * * *", True),
        (f"{_MINUTES} 1,2,3,4,5,6,7,8,9 * * *", True),
        (f"{_MINUTES} {_HOURS} * * *", False),
        (f"{_MINUTES} 1,2,22,23 */2 * MON,TUE", False),  # either day is enough, in every part
        (f"{_MINUTES} {_HOURS} {_DAYS} 1,2,4,5,7,8,10,11 MON,WED", False),
        (f"{_MINUTES} {_HOURS} *,{_DAYS} * MON", False),  # the day of the month is free
        (f"{_MINUTES} *,{_HOURS} {_DAYS} * *", False),  # an hour that begins with * follows elapsed time
        (f"{_MINUTES} {_HOURS},*/5 {_DAYS} * *", False),  # and one that does not, does not
    ],
)
def test_a_long_list_keeps_its_times_in_ranges_or_in_several_expressions(
    schedule: str, single: bool, zone: str
) -> None:
    conversion = converted(cronjob(schedule, timeZone=zone), Options(keep_clock_changes=True))
    cron = spec_of(conversion)["cron"]
    assert (len(cron) == 1) is single
    assert all(len(text) <= 128 for text in cron)
    assert conversion.verdict is Verdict.SAME
    (told,) = [note for note in notes_of(conversion) if "more than 128" in note]
    assert f"it has {len(schedule)} characters" in told or ",07," in schedule
    second = timedelta(seconds=1)
    for day in (
        "2026-03-08T00:00Z",
        "2026-10-25T00:00Z",
        "2026-11-01T00:00Z",
        "2027-03-28T00:00Z",
        "2028-02-28T00:00Z",
    ):
        begin, end = utc(day), utc(day) + timedelta(days=2)
        expected = list(fires(schedule, load_zone(zone), begin, end))
        assert times_of(conversion).window(begin - second, end - second) == expected, day


@pytest.mark.parametrize(
    "schedule", [f"*/2,{_EVERY_MINUTE} * * * *", " ".join([_MINUTES, _HOURS, *[_DAYS] * 2, "1,3,5"])]
)
def test_a_long_expression_that_cannot_be_taken_apart_is_refused_in_fitting_words(schedule: str) -> None:
    (told,) = findings_of(converted(cronjob(schedule)))
    assert f"it has {len(schedule)} characters, and an expression of a JobSchedule at most 128" in told


def test_what_is_wrong_in_a_long_expression_is_told() -> None:
    (told,) = findings_of(converted(cronjob(f"{_MINUTES},61 * * * *")))
    assert "61" in told
