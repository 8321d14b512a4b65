"""The grammar of expressions: what is read, and what is refused by name with what to write instead."""

from __future__ import annotations

import datetime as dt
import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slotkeeper.errors import InvalidField
from slotkeeper.timetable import parse_expression
from unit.timetable.inputs import expressions
from unit.timetable.oracle import Cron


@given(expressions())
@settings(max_examples=200, deadline=None)
def test_the_fields_are_those_of_the_oracle(text: str) -> None:
    expression, expected = parse_expression(text), Cron(text)
    assert set(expression.minutes_of_day) == expected.minutes_of_day
    assert list(expression.minutes_of_day) == sorted(expected.minutes_of_day)
    assert expression.months == expected.months
    assert expression.days == expected.days
    assert expression.weekdays == expected.weekdays
    assert expression.either_day is not expected.both_days
    assert expression.follows_clock is expected.follows_clock


# Twelve years hold every date but 29 February on every weekday.
DATES = [dt.datetime(2000, 1, 1, tzinfo=dt.UTC) + dt.timedelta(days=k) for k in range(12 * 366)]


@given(expressions())
@settings(max_examples=100, deadline=None)
def test_vixie_cron_differs_exactly_where_it_is_said_to(text: str) -> None:
    ours, vixie = Cron(text), Cron(text, day_rule="vixie")
    differs = any(ours.matches_date(date) != vixie.matches_date(date) for date in DATES)
    assert (parse_expression(text).differs_from_vixie_cron is not None) is differs


def test_the_sentence_about_vixie_cron_names_the_fields() -> None:
    told = parse_expression("0 0 */2 * 1").differs_from_vixie_cron
    assert told is not None
    assert "'*/2'" in told
    assert "'1'" in told
    for alike in (
        "0 0 */2 * *",
        "0 0 */2 * ?",
        "0 0 13 * 5",
        "0 0 */1 * 1",
        "0 0 * * 1",
        "0 0 1-31/2 * 1",
        "0 0 */2,1-31 * 0-6",
    ):
        assert parse_expression(alike).differs_from_vixie_cron is None, alike


@pytest.mark.parametrize(
    ("text", "weekdays"),
    [
        ("0 0 * * 7", {0}),
        ("0 0 * * 5-7", {5, 6, 0}),
        ("0 0 * * FRI-SUN", {5, 6, 0}),
        ("0 0 * * fri-Sun/2", {5, 0}),
        ("0 0 * * SUN-TUE", {0, 1, 2}),
        ("0 0 * * 0-7", set(range(7))),
        ("0 0 * * */2", {0, 2, 4, 6}),
        ("0 0 * * 1/2", {1, 3, 5}),  # Kubernetes' reading: to Saturday; Sunday is not its seventh day
        ("0 0 * * */7", {0}),
        ("0 0 * * 7/2", {0}),
        ("0 0 * * SAT,SUN,6,0,7", {6, 0}),
    ],
)
def test_weekdays(text: str, weekdays: set[int]) -> None:
    assert parse_expression(text).weekdays == weekdays


@pytest.mark.parametrize("free", ["*", "?", "*/1", "*/01", "?/1", "*,5", "5,*/1"])
def test_free_day_fields(free: str) -> None:
    by_weekday = parse_expression(f"0 0 {free} * 1")
    assert not by_weekday.either_day
    assert by_weekday.days == set(range(1, 32))
    by_day = parse_expression(f"0 0 13 * {free}")
    assert not by_day.either_day
    assert by_day.weekdays == set(range(7))


@pytest.mark.parametrize("restricted", ["*/2", "?/2", "1-31", "1/1"])
def test_restricted_day_fields(restricted: str) -> None:
    assert parse_expression(f"0 0 {restricted} * 1").either_day


@pytest.mark.parametrize(
    ("text", "minutes"),
    [
        ("59/15 0 * * *", [59]),
        ("5/15 0 * * *", [5, 20, 35, 50]),
        ("10-50/20 8 * * *", [490, 510, 530]),
        ("*/60 0 * * *", [0]),
        ("08 09 * * *", [548]),
        ("50,10,10,09 0 * * *", [9, 10, 50]),
        ("0 8-23/24 * * *", [480]),
    ],
)
def test_minutes_of_the_day(text: str, minutes: list[int]) -> None:
    assert list(parse_expression(text).minutes_of_day) == minutes


@pytest.mark.parametrize(
    ("text", "follows"),
    [
        ("0 * * * *", True),
        ("0 */2 * * *", True),
        ("0 *,3 * * *", True),
        ("0 0-23 * * *", False),
        ("* 2 * * *", False),
        ("@hourly", True),
        ("@daily", False),
    ],
)
def test_the_hour_field_decides_about_the_clock(text: str, follows: bool) -> None:
    assert parse_expression(text).follows_clock is follows


@pytest.mark.parametrize(
    ("text", "problem", "instead"),
    [
        ("", "'' is empty", "five fields"),
        (" \n", "is empty", "five fields"),
        ("0 0 * *", "has 4 fields, not five", "minute hour day-of-month month day-of-week"),
        ("daily", "has 1 field, not five", "five fields"),
        ("0 9 * * 1, 3", "blank inside a list", "write '0 9 * * 1,3'"),
        ("0 9 * * *; @daily", "several expressions", '["0 9 * * *", "@daily"]'),
        ("0 9 * * *\n0 10 * * *", "several expressions", '["0 9 * * *", "0 10 * * *"]'),
        ("*/5 1 2 3 4 2026", "has 6 fields", "without the year write '*/5 1 2 3 4'"),
        ("30 0 9 * * 1", "has 6 fields", "if the first field is seconds write '0 9 * * 1'"),
        ("5-5 0 * * *", "minute '5-5' is a range of one value", "write 5"),
        ("0 0 * JAN-JAN *", "month 'JAN-JAN'", "write JAN"),
        ("0 0 * * SUN-SUN", "day-of-week 'SUN-SUN'", "write SUN"),
        ("0 0 * * 7-SUN", "range of one value", "write 7"),
        ("0 22-2 * * *", "hour '22-2' runs backwards", "write 22-23,0-2"),
        ("0 23-0 * * *", "runs backwards", "write 23,0"),
        ("0 22-2/2 * * *", "runs backwards", "write 0,2,22"),
        ("0 0 * NOV-FEB *", "month 'NOV-FEB' runs backwards", "write 11-12,1-2"),
        ("0 0 * * FRI-MON", "day-of-week 'FRI-MON' runs backwards", "write 5-6,0-1"),
        ("*/90 * * * *", "step 90 is larger than the field", "spec.every.periodSeconds: 5400"),
        ("0 0 */32 * *", "step 32 is larger", "spec.every.periodSeconds: 2764800"),
        ("0 0 * */13 *", "step 13 is larger", "a step of at most 12"),
        ("0 0 * * */8", "step 8 is larger", "a step of at most 7"),
        ("*/0 * * * *", "step '0'", "write */2 or larger"),
        ("*/ * * * *", "step ''", "write */2 or larger"),
        ("60 * * * *", "60 is outside 0-59", "write 0 to 59"),
        ("0 24 * * *", "24 is outside 0-23", "write 0 to 23"),
        ("0 0 0 * *", "0 is outside 1-31", "write 1 to 31"),
        ("0 0 * 13 *", "13 is outside 1-12", "write 1 to 12"),
        ("0 0 * * 8", "8 is outside 0-7", "write 0 to 7"),
        ("0 0 * * MONDAY", "'MONDAY' is not a number", "a name such as SUN"),
        ("0 0 MON * *", "day-of-month 'MON': 'MON' is not a number", "write 1 to 31, or *"),
        ("0,,5 * * * *", "empty value in a list", "write 0 to 59"),
        ("-5 * * * *", "'' is not a number", "write 0 to 59"),
        ("1-2-3 * * * *", "'2-3' is not a number", "write 0 to 59"),
        ("1/2/3 * * * *", "step '2/3'", "write */2 or larger"),
        ("** * * * *", "'**' is not a number", "or *"),
        ("0 ? * * *", "hour '?'", "write *"),
        ("0 0 L * *", "day-of-month 'L': 'L' (the last day)", "such as 28"),
        ("0 0 L-3 * *", "'L' (the last day)", "such as 28"),
        ("0 0 * * 5L", "'L' (the last day)", "such as 28"),
        ("0 0 * * FRIL", "'L' (the last day)", "such as 28"),
        ("0 0 15W * *", "'W' (the nearest weekday)", "1-5 in day-of-week"),
        ("0 0 LW * *", "'W' (the nearest weekday)", "1-5 in day-of-week"),
        ("0 0 * * 5#2", "'#' (the n-th weekday", "let the job skip"),
        ("H H * * *", "minute 'H': 'H' (a value from a hash)", "spec.spreadSeconds"),
        ("H(0-29)/10 * * * *", "'H' (a value from a hash)", "spec.spreadSeconds"),
        ("R 0 * * *", "a random value", "spec.spreadSeconds"),
        ("0~30 0 * * *", "a random value", "spec.spreadSeconds"),
        ("TZ=Asia/Tokyo 0 9 * * *", "time zone prefix", "spec.timeZone: Asia/Tokyo and '0 9 * * *'"),
        ("CRON_TZ=UTC @daily", "time zone prefix", "spec.timeZone: UTC and '@daily'"),
        ("@every 5m", "'@every 5m' is no calendar expression", "spec.every.periodSeconds (every 5m)"),
        ("@reboot", "no meaning in a cluster", "the times"),
        ("@daily 5", "'@daily 5' is not a known macro", "@midnight"),
        ("0 0 ٣ * *", "not ASCII, '٣', at position 5", "plain digits"),
        ("0 0\u00a0* * *", "not ASCII", "blanks"),
        ("0,1,2," * 30 + "3 * * * *", "characters, the limit is 128", "several items"),
    ],
)
def test_refusals(text: str, problem: str, instead: str) -> None:
    with pytest.raises(InvalidField) as caught:
        parse_expression(text, "spec.cron[3]")
    assert caught.value.field == "spec.cron[3]"
    assert problem in caught.value.problem
    assert instead in caught.value.instead


@given(st.text(alphabet="0123456789*/-,?@LWHR# SUNMONJAND\t\x00\x1f;", max_size=40))
@settings(max_examples=400, deadline=None)
def test_anything_is_either_read_or_refused(text: str) -> None:
    try:
        expression = parse_expression(text)
    except InvalidField as refusal:
        told = refusal.problem, refusal.instead
    else:
        told = ("read", "as is")
        # What is read is read again from its own text, and names at least one minute of some day.
        assert parse_expression(expression.text) == expression
        assert expression.minutes_of_day
        assert expression.months
        assert expression.days
        assert expression.weekdays
    assert all(told)


@pytest.mark.parametrize(
    "text", ["0 22-2 * * *", "0 0 * * FRI-MON", "0 0 * NOV-FEB *", "0 22-2/2 * * *", "5-5 0 * * *"]
)
def test_what_is_suggested_is_accepted(text: str) -> None:
    with pytest.raises(InvalidField) as caught:
        parse_expression(text)
    term = next(part for part in text.split() if "-" in part)
    assert parse_expression(text.replace(term, caught.value.instead.removeprefix("write ")))


def test_the_page_tells_what_to_write_instead() -> None:
    page = (Path(__file__).parents[3] / "docs" / "time.md").read_text(encoding="utf-8")
    table = re.search(r"\| you want \|.*\n.*\n((?:\|.*\n)+)", page)
    assert table is not None
    lines = [line.strip("|").split("|") for line in table[1].splitlines()]
    for _, refused, instead in lines:
        for text in re.findall("`([^`]+)`", refused):
            with pytest.raises(InvalidField):
                parse_expression(text)
        for text in re.findall("`([^`]+)`", instead):
            if re.match(r"\d", text):
                parse_expression(text)
    assert len(lines) > 5
