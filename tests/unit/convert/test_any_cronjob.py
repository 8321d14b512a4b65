"""Any CronJob converts or is refused by name, and what is converted fires when Kubernetes would."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slotkeeper.convert import Conversion, NoteKind, Options, Verdict, report_json, report_text, yaml_text
from slotkeeper.spec import check, parse_spec
from slotkeeper.timetable import load_zone
from unit.convert.kubernetes_cron import fires, random_expression
from unit.convert.objects import container, converted, cronjob, notes_of, read, spec_of, times_of

# Shifts of whole hours only: at half-hour shifts Kubernetes' own search also passes over minutes, which this
# model has.
ZONES = ("Etc/UTC", "Europe/Berlin", "America/New_York", "America/Sao_Paulo", "Africa/Cairo", "Asia/Kathmandu")
#: Days on which the clock of some of these zones changes, and days on which none does.
DAYS = (
    datetime(2026, 3, 28, 12, tzinfo=UTC),
    datetime(2026, 10, 24, 12, tzinfo=UTC),
    datetime(2026, 3, 7, 12, tzinfo=UTC),
    datetime(2026, 11, 1, 0, tzinfo=UTC),
    datetime(2018, 11, 3, 12, tzinfo=UTC),
    datetime(2026, 4, 23, 12, tzinfo=UTC),
    datetime(2026, 12, 30, 12, tzinfo=UTC),
    datetime(2028, 2, 28, 12, tzinfo=UTC),
)
LENGTH = timedelta(hours=36)


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32), zone=st.sampled_from(ZONES), day=st.sampled_from(DAYS))
def test_it_fires_when_kubernetes_does(seed: int, zone: str, day: datetime) -> None:
    expression = random_expression(Random(seed))
    clock = load_zone(zone)
    expected = list(fires(expression, clock, day, day + LENGTH))
    second = timedelta(seconds=1)
    kept = converted(cronjob(expression, timeZone=zone), Options(keep_clock_changes=True))
    assert times_of(kept).window(day - second, day + LENGTH - second) == expected, expression
    if day.astimezone(clock).utcoffset() == (day + LENGTH).astimezone(clock).utcoffset():
        plain = converted(cronjob(expression, timeZone=zone))
        assert times_of(plain).window(day - second, day + LENGTH - second) == expected, expression


@pytest.mark.parametrize("zone", ZONES)
def test_an_outcome_that_is_called_the_same_is_the_same(zone: str) -> None:
    """Within two years of the look ahead, at every change of the clock."""
    random = Random(zone)
    clock = load_zone(zone)
    second = timedelta(seconds=1)
    changes = [
        start
        for start in (datetime(2026, 12, 1, tzinfo=UTC) + timedelta(days=n) for n in range(728))
        if start.astimezone(clock).utcoffset() != (start + timedelta(days=1)).astimezone(clock).utcoffset()
    ]
    verdicts = set()
    for _ in range(20):
        minute, _, *date = random_expression(random).split()
        hour = random.choice(["0", "2", "1-3", "*/2", "0-23/2", "1,2", "23", "*"])
        expression = " ".join([minute, hour, *random.choice([date, ["*", "*", "*"]])])
        conversion = converted(cronjob(expression, timeZone=zone))
        table = times_of(conversion)
        same = all(
            table.window(start - second, start + timedelta(days=1) - second)
            == list(fires(expression, clock, start, start + timedelta(days=1)))
            for start in changes
        )
        told = any(
            "the CronJob has no run" in text or "runs also at" in text
            for text in notes_of(conversion, NoteKind.CHANGED)
        )
        assert told == (not same), expression
        verdicts.add(told)
    assert (True in verdicts) == bool(changes)


_LIMITS = st.none() | st.integers(0, 2**31 - 1)
_TEXT = st.text(st.characters(codec="utf-8"), max_size=8)
_CRONJOBS = st.builds(
    cronjob,
    st.integers(0, 2**32).map(lambda seed: random_expression(Random(seed)))
    | _TEXT
    | st.sampled_from(["@every 6h", "@daily"]),
    concurrencyPolicy=st.sampled_from([None, "Allow", "Forbid", "Replace", "forbid"]),
    startingDeadlineSeconds=st.none() | st.integers(-1, 2**63 - 1),
    suspend=st.sampled_from([None, True, False]),
    timeZone=st.sampled_from([None, "Europe/Berlin", "Mars/Olympus"]),
    successfulJobsHistoryLimit=_LIMITS,
    failedJobsHistoryLimit=_LIMITS,
    job=st.fixed_dictionaries(
        {},
        optional={
            "backoffLimit": _LIMITS,
            "activeDeadlineSeconds": _LIMITS,
            "parallelism": _LIMITS,
            "ttlSecondsAfterFinished": _LIMITS,
            "suspend": st.booleans(),
        },
    ),
    pod=st.builds(
        lambda value, policy: {**container(env=[{"name": "A", "value": value}]), "restartPolicy": policy},
        _TEXT | st.integers() | st.none(),
        st.sampled_from(["Never", "OnFailure"]),
    ),
    meta=st.fixed_dictionaries(
        {"name": st.sampled_from(["a", "a.b-c", "A"]), "labels": st.dictionaries(_TEXT, _TEXT, max_size=1)}
    ),
)


@settings(max_examples=100, deadline=None)
@given(obj=_CRONJOBS, keep=st.booleans())
def test_any_cronjob_converts_or_is_refused_by_name(obj: Any, keep: bool) -> None:
    conversion = converted(obj, Options(keep_clock_changes=keep))
    told = [(lambda field: f"file.yaml {field}", conversion)]
    assert report_text(told)
    assert report_json(told)
    if conversion.verdict is Verdict.REFUSED:
        assert conversion.findings
        assert all(finding.field.startswith(("spec.", "metadata.")) for finding in conversion.findings)
        return
    _is_right(obj, conversion)


def _is_right(obj: Any, conversion: Conversion) -> None:
    spec = spec_of(conversion)
    parse_spec(spec)
    assert check(dict(conversion.job_schedule or {})) == []
    assert spec["job"]["template"] == obj["spec"]["jobTemplate"]
    job, retry = obj["spec"]["jobTemplate"]["spec"], spec["retry"]["maxAttempts"]
    limit = job.get("backoffLimit")
    # An unset limit is 6 to a CronJob, and 0 to a JobSchedule.
    assert retry * (1 + (limit or 0)) <= 1 + (6 if limit is None else limit)
    (again,) = read(yaml_text([conversion.job_schedule or {}]))
    assert again.object["spec"] == spec
