"""Each warning is told where it should be, with what to write instead, and not told where it should not."""

from __future__ import annotations

import re
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slotkeeper.foresight import CODES, Finding, crowds, warnings_of
from unit.foresight.schedules import at, schedule
from unit.timetable.inputs import expressions, instants, zones

NOW = at("2027-01-01 00:30")
SOURCES = Path(__file__).parents[3] / "controller" / "slotkeeper" / "foresight"
PAGE = Path(__file__).parents[3] / "docs" / "preview.md"
ONCE = {"retry": {"maxAttempts": 1}}
DAILY = {"cron": ["0 6 * * *"]}
OFTEN = {"cron": ["*/5 * * * *"]}


class Rule(NamedTuple):
    """A spec that is told of, the field and some words; and specs beside it that are not."""

    code: str
    field: str
    words: str
    told: dict[str, Any]
    silent: list[dict[str, Any]]


RULES = [
    Rule("NeverFires", "spec.cron", "only when it is triggered", {"cron": ["0 0 31 2 *"]}, [{"cron": ["0 0 29 2 *"]}]),
    Rule("NeverFires", "spec.cron", "between startTime and endTime",
         DAILY | {"startTime": "2027-02-01T07:00:00Z", "endTime": "2027-02-01T08:00:00Z"},
         [DAILY | {"startTime": "2027-02-01T05:00:00Z", "endTime": "2027-02-01T08:00:00Z"}]),
    Rule("EndTimePassed", "spec.endTime", "the last one was 2026-12-31T06:00:00Z",
         DAILY | {"endTime": "2027-01-01T00:00:00Z"}, [DAILY | {"endTime": "2027-01-01T06:00:01Z"}]),
    Rule("AllInThePast", "spec.at", "2026-12-31T00:00:00Z", {"at": ["2026-12-31T00:00:00Z", "2026-01-01T00:00:00Z"]},
         [{"at": ["2026-12-31T00:00:00Z", "2027-12-31T00:00:00Z"]}, {"at": ["2027-12-31T00:00:00Z"]}]),
    Rule("SomeInThePast", "spec.at", "1 of 2", {"at": ["2026-12-31T00:00:00Z", "2027-12-31T00:00:00Z"]},
         [{"at": ["2026-12-31T00:00:00Z"]}, {"at": ["2027-12-31T00:00:00Z"]}]),
    # The instant itself has passed, as an end has: slots are before it.
    Rule("SomeInThePast", "spec.at", "1 of 2", {"at": ["2027-01-01T00:30:00Z", "2027-12-31T00:00:00Z"]},
         [{"at": ["2027-01-01T00:30:01Z", "2027-12-31T00:00:00Z"]}]),
    Rule("EndTimePassed", "spec.endTime", "2027-01-01T00:30:00Z", DAILY | {"endTime": "2027-01-01T00:30:00Z"}, []),
    Rule("StartTimePassed", "spec.startTime", "not made up", DAILY | {"startTime": "2026-12-31T00:00:00Z"},
         [DAILY | {"startTime": "2027-02-01T00:00:00Z"}, {"at": ["2026-12-31T00:00:00Z"],
                                                          "startTime": "2026-01-01T00:00:00Z"}]),
    Rule("Suspended", "spec.suspend", "no slots", DAILY | {"suspend": True}, [DAILY]),
    # Friday 1 January is an odd day: here both fields are restricted, and either is enough.
    Rule("DiffersFromVixieCron", "spec.cron[1]", "Fri 2027-01-01 has slots only here",
         {"cron": ["0 6 * * *", "0 0 */2 * MON"]}, [DAILY, {"cron": ["0 0 1 * MON"]}, {"cron": ["0 0 */2 * *"]}]),
    Rule("DiffersFromVixieCron", "spec.cron[0]", "Fri 2027-01-01 has slots only there",
         {"cron": ["0 0 15,* * MON"]}, [DAILY]),
    Rule("ClockChange", "spec.cron", "skips 02:00–03:00", {"cron": ["30 2 * * *"], "timeZone": "Europe/Berlin"},
         [{"cron": ["30 4 * * *"], "timeZone": "Europe/Berlin"}, {"cron": ["30 2 * * *"]}]),
    Rule("DaylightSavingUnused", "spec.daylightSaving", "the hour of every expression starts with *",
         {"cron": ["5 * * * *"], "daylightSaving": {"skippedTime": "Skip"}},
         [{"cron": ["5 * * * *", "5 2 * * *"], "daylightSaving": {"skippedTime": "Skip"}}, {"cron": ["5 * * * *"]}]),
    Rule("DaylightSavingUnused", "spec.daylightSaving", "there is no cron expression",
         {"every": {"periodSeconds": 600}, "daylightSaving": {"repeatedTime": "RunTwice"}},
         [{"every": {"periodSeconds": 600}}]),
    # Case C037, in its own words.
    Rule("TimeZoneUnused", "spec.timeZone", "for a time of day write cron: ['0 6 * * *']",
         {"every": {"periodSeconds": 86400, "anchorTime": "2026-10-23T05:00:00Z"}, "timeZone": "Europe/London"},
         [{"every": {"periodSeconds": 600}}, DAILY | {"timeZone": "Europe/Berlin"}]),
    Rule("EveryIsElapsedTime", "spec.every.periodSeconds", "not a time of day", {"every": {"periodSeconds": 172800}},
         [{"every": {"periodSeconds": 43200}}]),
    Rule("UnevenStep", "spec.cron[0]", "after minute 45 the next is minute 0, 15 minutes later, not 45; for a fixed "
         "period write every.periodSeconds: 2700", {"cron": ["*/45 * * * *"]},
         [{"cron": ["*/15 * * * *"]}, {"cron": ["*/1 * * * *"]}, {"cron": ["@hourly"]}, {"cron": ["0-44/7 * * * *"]}]),
    Rule("UnevenStep", "spec.cron[0]", "after hour 20 the next is hour 0, 4 hours later, not 5; for a fixed period "
         "write every.periodSeconds: 18000", {"cron": ["0 0/5 * * *"]}, [{"cron": ["0 */6 * * *"]}]),
    Rule("UnevenStep", "spec.cron[0]", "on the first of every month", {"cron": ["0 0 */3 * *"]},
         [{"cron": ["0 0 1-28/3 * *"]}]),
    Rule("StepOfOneValue", "spec.cron[0]", "'*/60' names one value alone, 0", {"cron": ["*/60 * * * *"]},
         [{"cron": ["*/30 * * * *"]}, {"cron": ["*/59 * * * *"]}, {"cron": ["@daily"]}, {"cron": ["5 * * * *"]}]),
    Rule("StepOfOneValue", "spec.cron[1]", "'8-23/24' names one value alone, 8",
         {"cron": ["0 5 * * *", "0 7,8-23/24 * * *"]}, [{"cron": ["0 8-23/15 * * *"]}]),
    Rule("StepOfOneValue", "spec.cron[0]", "'0-44/45' names one value alone, 0", {"cron": ["0-44/45 * * * *"]},
         [{"cron": ["0-45/45 * * * *"]}]),
    Rule("StepOfOneValue", "spec.cron[0]", "'*/31' names one value alone, 1", {"cron": ["0 0 */31 * *"]},
         [{"cron": ["0 0 */30 * *"]}, {"cron": ["0 0 1 */6 *"]}]),
    Rule("EveryMinuteOfAnHour", "spec.cron[0]", "'0 2 * * *'", {"cron": ["* 2 * * *"]},
         [{"cron": ["* * * * *"]}, {"cron": ["0 2 * * *"]}, {"cron": ["* */2 * * *"]}, {"cron": ["@daily"]}]),
    Rule("EitherDay", "spec.cron[0]", "day-of-month 13 and also on every day-of-week FRI", {"cron": ["0 0 13 * FRI"]},
         [{"cron": ["0 0 13 * *"]}, {"cron": ["0 0 * * FRI"]}, {"cron": ["0 0 */2 * FRI"]}]),
    Rule("DayMissingInSomeMonths", "spec.cron[0]", "no slot in Feb, Apr, Jun, Sep, Nov,", {"cron": ["0 0 31 * *"]},
         [{"cron": ["0 0 28,31 * *"]}, {"cron": ["0 0 31 1,12 *"]}, {"cron": ["0 0 29 2 *"]}, {"cron": ["0 0 31 * 1"]},
          {"cron": ["0 0 31 4 *"]}]),
    Rule("DayMissingInSomeMonths", "spec.cron[0]", "no slot in Feb (but for leap years)", {"cron": ["0 0 29 * *"]},
         [{"cron": ["0 0 28 * *"]}]),
    # 30 + 60 + 120 + 240 + 480 s.
    Rule("RetriesBeyondInterval", "spec.retry", "15 min 30 s (6 attempts and the waits between them), longer than its "
         "shortest interval of 15 min (from 2027-01-01T00:45:00Z): slots that fall due meanwhile are skipped (Overlap)",
         {"cron": ["*/15 * * * *"]},
         [{"cron": ["*/16 * * * *"]} | ONCE | {"retry": {"maxAttempts": 5}}, {"cron": ["*/20 * * * *"]},
          {"cron": ["*/15 * * * *"], "activeDeadlineSeconds": 900}, OFTEN | ONCE,
          {"cron": ["*/15 * * * *"], "retry": {"maxBackoffSeconds": 400}}, {"at": ["2027-02-01T00:00:00Z"]}]),
    Rule("RetriesBeyondInterval", "spec.retry", "1 h 15 min 30 s (6 attempts of 10 min at most and the waits",
         {"cron": ["0 * * * *"], "attemptDeadlineSeconds": 600},
         [{"cron": ["0 */2 * * *"], "attemptDeadlineSeconds": 600}]),
    Rule("RetriesBeyondInterval", "spec.retry", "shorter back-offs, or activeDeadlineSeconds: 900",
         {"cron": ["*/15 * * * *"], "attemptDeadlineSeconds": 899}, []),
    # The CRD refuses an activeDeadlineSeconds below it.
    Rule("RetriesBeyondInterval", "spec.retry", "shorter back-offs, or a shorter attemptDeadlineSeconds",
         {"cron": ["*/15 * * * *"], "attemptDeadlineSeconds": 900}, []),
    Rule("RetriesBeyondInterval", "spec.retry", "wait behind it", OFTEN | {"overlapPolicy": "Queue"}, []),
    Rule("RetriesBeyondInterval", "spec.retry", "cancels it first", OFTEN | {"overlapPolicy": "Replace"}, []),
    Rule("RetriesBeyondInterval", "spec.retry", "at once", OFTEN | {"overlapPolicy": "Allow"}, []),
    Rule("AttemptBeyondInterval", "spec.attemptDeadlineSeconds", "301 s are longer than its shortest interval of 5 min",
         OFTEN | ONCE | {"attemptDeadlineSeconds": 301},
         [OFTEN | ONCE | {"attemptDeadlineSeconds": 300},
          OFTEN | ONCE | {"attemptDeadlineSeconds": 301, "overlapPolicy": "Allow"}]),
    Rule("AttemptBeyondInterval", "spec.attemptDeadlineSeconds", "its shortest interval of 2 h",
         {"cron": ["0 6,8 * * *"], "attemptDeadlineSeconds": 7201} | ONCE,
         [{"cron": ["0 6,8 * * *"], "attemptDeadlineSeconds": 7200} | ONCE]),
    Rule("AttemptBeyondInterval", "spec.activeDeadlineSeconds", "301 s are longer",
         OFTEN | ONCE | {"activeDeadlineSeconds": 301},
         [OFTEN | ONCE | {"activeDeadlineSeconds": 300},
          OFTEN | ONCE | {"activeDeadlineSeconds": 301, "attemptDeadlineSeconds": 200}]),
    Rule("NoSlotCanStart", "spec.catchUp.graceSeconds", "write 10 or more",
         DAILY | {"catchUp": {"policy": "Skip", "graceSeconds": 0}},
         [DAILY | {"catchUp": {"policy": "Skip", "graceSeconds": 10}}, DAILY | {"catchUp": {"graceSeconds": 0}}]),
    Rule("StartDeadlineBelowPoll", "spec.startingDeadlineSeconds", "9 s are shorter",
         DAILY | {"startingDeadlineSeconds": 9}, [DAILY | {"startingDeadlineSeconds": 10}, DAILY]),
    Rule("StartDeadlineBelowPoll", "spec.catchUp.graceSeconds", "5 s are shorter",
         DAILY | {"catchUp": {"policy": "Skip", "graceSeconds": 5}, "startingDeadlineSeconds": 60}, []),
    Rule("NoTimeForRetries", "spec.activeDeadlineSeconds", "none of the other 5 can begin; write 4530 or more",
         DAILY | {"attemptDeadlineSeconds": 600, "activeDeadlineSeconds": 600},
         [DAILY | {"attemptDeadlineSeconds": 600, "activeDeadlineSeconds": 601},
          DAILY | ONCE | {"attemptDeadlineSeconds": 600, "activeDeadlineSeconds": 600},
          DAILY | {"activeDeadlineSeconds": 600}]),
    Rule("SuccessAgeBelowInterval", "spec.maxSuccessAgeSeconds", "its longest interval of 3 d",
         {"cron": ["0 6 * * MON-FRI"], "maxSuccessAgeSeconds": 90000},
         [{"cron": ["0 6 * * MON-FRI"], "maxSuccessAgeSeconds": 260000}, DAILY | {"maxSuccessAgeSeconds": 90000}]),
    # 1440 slots on one day of the month.
    Rule("SuccessAgeBelowInterval", "spec.maxSuccessAgeSeconds", "its longest interval of 30 d",
         {"cron": ["* * 2 * *"], "maxSuccessAgeSeconds": 2592000},
         [{"cron": ["* * 2 * *"], "maxSuccessAgeSeconds": 2592060}, {"every": {"periodSeconds": 10},
                                                                   "maxSuccessAgeSeconds": 10}]),
    Rule("SpreadBeyondInterval", "spec.spreadSeconds", "write at most 300", OFTEN | ONCE | {"spreadSeconds": 301},
         [OFTEN | ONCE | {"spreadSeconds": 300}]),
    Rule("CatchUpFlood", "spec.catchUp.maxRuns", "one after another",
         OFTEN | {"catchUp": {"policy": "RunAll", "maxRuns": 1000}},
         [OFTEN | {"catchUp": {"policy": "RunAll", "maxRuns": 999}}, OFTEN | {"catchUp": {"maxRuns": 1000}},
          {"cron": ["0 * * * *"], "catchUp": {"policy": "RunAll", "maxRuns": 1000}}]),
    Rule("MaxRunsUnused", "spec.catchUp.maxRuns", "only with policy RunAll", DAILY | {"catchUp": {"maxRuns": 5}},
         [DAILY | {"catchUp": {"maxRuns": 5, "policy": "RunAll"}}, DAILY]),
    Rule("NoBackoff", "spec.retry.maxBackoffSeconds", "6 attempts follow each other at once",
         DAILY | {"retry": {"initialBackoffSeconds": 0, "maxBackoffSeconds": 0}},
         [DAILY, DAILY | {"retry": {"maxAttempts": 1, "initialBackoffSeconds": 0, "maxBackoffSeconds": 0}}]),
    Rule("CommandIsOneWord", "spec.command", "write [df, -h, /]", DAILY | {"command": ["df -h /"]},
         [DAILY | {"command": ["df", "-h", "/"]}, DAILY | {"command": ["/opt/my program", "x"]},
          DAILY | {"command": ["df"]}]),
    Rule("ShellWordInCommand", "spec.command", "'&&' is an argument", DAILY | {"command": ["a", "&&", "b"]},
         [DAILY | {"command": ["sh", "-c", "a && b"]}]),
]  # fmt: skip


def _told(spec: dict[str, Any]) -> list[Finding]:
    return warnings_of(schedule(**spec), NOW)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: f"{rule.code}-{rule.words[:20]}")
def test_a_warning_is_told_with_its_field(rule: Rule) -> None:
    found = [finding for finding in _told(rule.told) if finding.code == rule.code]
    assert [finding.field for finding in found] == [rule.field]
    assert rule.words in found[0].message


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: f"{rule.code}-{rule.words[:20]}")
def test_and_is_silent_beside_it(rule: Rule) -> None:
    for spec in rule.silent:
        assert rule.code not in {finding.code for finding in _told(spec)}, spec


def test_the_smallest_useful_object_is_warned_of_nothing() -> None:
    found = _told({"cron": ["30 4 * * *"], "timeZone": "Europe/Berlin"})
    assert found == []


def test_every_code_is_tested_and_on_the_page() -> None:
    source = "\n".join(file.read_text() for file in SOURCES.glob("*.py"))
    levels = {code: level for level, code in re.findall(r'Level\.(WARNING|NOTE),\s+"(\w+)"', source)}
    assert set(levels) == CODES
    assert {rule.code for rule in RULES} | {"ManyAtOneMinute"} == set(levels)
    warnings, _, notes = PAGE.read_text().partition("**Warnings**")[2].partition("**Notes**")
    notes = notes.partition("\n## ")[0]
    for text, level in ((warnings, "WARNING"), (notes, "NOTE")):
        told = re.findall(r"^\| `(\w+)` \|", text, re.MULTILINE)
        assert sorted(told) == sorted(code for code, of in levels.items() if of == level)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(expressions(), min_size=1, max_size=3),
    zones(),
    instants(1900, 9998),
    st.sampled_from(["Skip", "RunAfter"]),
)
def test_no_schedule_is_too_odd_to_be_judged(texts: list[str], zone: str, now: datetime, skipped: str) -> None:
    odd = schedule(cron=texts, timeZone=zone, daylightSaving={"skippedTime": skipped}, endTime="9990-01-01T00:00:00Z")
    for finding in warnings_of(odd, now):
        assert finding.field.startswith("spec.")
        assert finding.message
    crowds([odd] * 5, now)


@pytest.mark.parametrize("day", range(1, 8))
def test_a_pause_of_a_weekend_is_told_on_every_day_of_the_week(day: int) -> None:
    office = schedule(cron=["*/5 9-17 * * MON-FRI"], maxSuccessAgeSeconds=100_000)
    codes = [finding.code for finding in warnings_of(office, at(f"2027-02-0{day} 10:00"))]
    assert "SuccessAgeBelowInterval" in codes


def _crowd(count: int, **spec: Any) -> list[Any]:
    return [schedule(f"s{number}", **(DAILY | spec)) for number in range(count)]


def test_many_schedules_at_one_minute_are_told_of_once() -> None:
    others = [schedule("noon", cron=["0 12 * * *"])]
    ((first, finding),) = crowds([*others, *_crowd(5)], NOW)
    assert (first.name, finding.code) == ("s0", "ManyAtOneMinute")
    assert "5 schedules fall due in the minute 2027-01-01T06:00:00Z" in finding.message
    assert "billing/s4" in finding.message
    assert "noon" not in finding.message


def test_a_crowd_begins_with_five() -> None:
    assert crowds(_crowd(4), NOW) == []


@pytest.mark.parametrize(
    "alike",
    [
        {"spreadSeconds": 600},
        {"suspend": True},
        {"cron": ["* * * * *"]},  # so frequent that a spread changes nothing
    ],
)
def test_what_is_no_crowd(alike: dict[str, Any]) -> None:
    assert crowds(_crowd(8, **alike), NOW) == []


def test_two_crowds_are_two_findings_and_a_smaller_part_of_one_is_none() -> None:
    morning = [schedule(f"m{k}", cron=["0 6 * * *", "0 18 * * *"] if k < 5 else ["0 6 * * *"]) for k in range(6)]
    noon = [schedule(f"n{k}", cron=["0 12 1 * *"]) for k in range(5)]
    found = crowds([*morning, *noon], NOW)
    assert [(first.name, finding.message.split(" ")[0]) for first, finding in found] == [("m0", "6"), ("n0", "5")]
