"""Overlap, deadlines, retries, history, suspension: a JobSchedule never runs more than its CronJob did."""

from __future__ import annotations

from typing import Any

import pytest

from slotkeeper.convert import NoteKind, Verdict
from slotkeeper.spec import check
from unit.convert.objects import container, converted, cronjob, findings_of, notes_of, spec_of


@pytest.mark.parametrize(
    ("policy", "overlap"), [(None, "Allow"), ("Allow", "Allow"), ("Forbid", "Queue"), ("Replace", "Replace")]
)
def test_overlap_is_always_written(policy: str | None, overlap: str) -> None:
    spec = spec_of(converted(cronjob(concurrencyPolicy=policy)))
    assert spec["overlapPolicy"] == overlap
    assert spec["catchUp"] == {"policy": "RunOnce"}


def test_c059_what_forbid_really_does_is_told() -> None:
    (note,) = [note for note in notes_of(converted(cronjob(concurrencyPolicy="Forbid"))) if "Forbid" in note]
    assert "starts when the run ends" in note
    assert "overlapPolicy: Skip" in note
    obj = cronjob(concurrencyPolicy="Forbid", startingDeadlineSeconds=1700)
    (note,) = [note for note in notes_of(converted(obj)) if "Forbid" in note]
    assert "unless that is more than 1700 s late" in note


def test_an_unknown_policy_is_refused() -> None:
    (finding,) = converted(cronjob(concurrencyPolicy="Never")).findings
    assert finding.field == "spec.concurrencyPolicy"


@pytest.mark.parametrize(("deadline", "written"), [(10, 10), (None, None), (2**62, 3_153_600_000)])
def test_starting_deadline(deadline: int | None, written: int | None) -> None:
    conversion = converted(cronjob(startingDeadlineSeconds=deadline))
    assert spec_of(conversion).get("startingDeadlineSeconds") == written
    assert check(dict(conversion.job_schedule or {})) == []


def test_a_deadline_of_zero_is_refused_because_it_never_ran() -> None:
    (finding,) = converted(cronjob(startingDeadlineSeconds=0)).findings
    assert finding.field == "spec.startingDeadlineSeconds"
    assert "never starts" in str(finding)


def test_c040_more_than_100_missed_is_told() -> None:
    assert any("more than 100" in note for note in notes_of(converted(cronjob())))
    assert not any("more than 100" in note for note in notes_of(converted(cronjob(startingDeadlineSeconds=60))))


def test_c041_resuming_is_told() -> None:
    conversion = converted(cronjob(suspend=True))
    assert spec_of(conversion)["suspend"] is True
    for obj in (cronjob(), cronjob(suspend=True)):
        assert any("missed while suspended" in note for note in notes_of(converted(obj), NoteKind.DIFFERS))


def _retry(job: Any = None, pod: Any = None) -> tuple[Any, Any, str]:
    conversion = converted(cronjob(job=job, pod=pod))
    spec = spec_of(conversion)
    (note,) = [note for note in notes_of(conversion) if "backoffLimit: " in note]
    assert spec["job"]["template"]["spec"].get("backoffLimit") == (job or {}).get("backoffLimit")
    return spec["retry"], spec.get("activeDeadlineSeconds"), note


@pytest.mark.parametrize("limit", [0, 1, 6])
def test_a_set_backoff_limit_stays_the_jobs(limit: int) -> None:
    """The Job retries itself; attempts of ours on top of it would multiply."""
    retry, deadline, _ = _retry({"backoffLimit": limit, "activeDeadlineSeconds": 60})
    assert (retry, deadline) == ({"maxAttempts": 1}, None)


@pytest.mark.parametrize("pod", [{}, {"restartPolicy": "OnFailure"}], ids=["Never", "OnFailure"])
def test_an_unset_backoff_limit_is_seven_attempts(pod: dict[str, Any]) -> None:
    retry, deadline, note = _retry(pod=pod)
    assert retry == {"maxAttempts": 7, "initialBackoffSeconds": 10, "maxBackoffSeconds": 600}
    assert deadline is None
    assert "6" in note


def test_the_jobs_deadline_then_bounds_all_attempts() -> None:
    retry, deadline, note = _retry({"activeDeadlineSeconds": 300})
    assert (retry["maxAttempts"], deadline) == (7, 300)
    assert "300" in note


@pytest.mark.parametrize(
    ("job", "pod"),
    [
        ({"parallelism": 3}, {}),
        ({"completions": 2}, {}),
        ({"podFailurePolicy": {"rules": []}}, {}),
        ({"successPolicy": {"rules": []}}, {}),
        ({"backoffLimitPerIndex": 1}, {}),
        ({}, {"restartPolicy": "OnFailure", "initContainers": [{"name": "i", "image": "i"}]}),
        ({}, {"restartPolicy": "OnFailure", "containers": [{"name": "a"}, {"name": "b"}]}),
    ],
)
def test_where_a_new_job_would_repeat_more_there_is_one_attempt(job: Any, pod: Any) -> None:
    retry, _, note = _retry(job, pod)
    assert retry == {"maxAttempts": 1}
    limit = 2147483647 if "backoffLimitPerIndex" in job else 6
    assert note.endswith(f"set it to {limit} in job.template to keep the Job's own retries")


def test_init_containers_of_a_pod_that_is_made_again_run_again_anyway() -> None:
    assert _retry(pod={"initContainers": [{"name": "i", "image": "i"}]})[0]["maxAttempts"] == 7


@pytest.mark.parametrize(
    ("spec", "job", "words"),
    [
        ({}, {}, ["the history limits", "a day after"]),
        ({"failedJobsHistoryLimit": 0}, {}, ["failedJobsHistoryLimit 0", "a day after"]),
        ({"successfulJobsHistoryLimit": 3}, {"ttlSecondsAfterFinished": 0}, ["successfulJobsHistoryLimit 3", "0 s"]),
    ],
)
def test_history_limits_are_told(spec: Any, job: Any, words: list[str]) -> None:
    (note,) = [note for note in notes_of(converted(cronjob(job=job, **spec))) if "HistoryLimit: " in note]
    for word in words:
        assert word in note


def test_owners_and_finalizers_are_left_behind_aloud() -> None:
    owners = [{"kind": "Backup", "name": "nightly", "uid": "1", "apiVersion": "example.com/v1"}]
    conversion = converted(cronjob(meta={"ownerReferences": owners, "finalizers": ["example.com/f"]}))
    assert conversion.job_schedule is not None
    assert conversion.job_schedule["metadata"] == {"name": "a"}
    warnings = notes_of(conversion, NoteKind.WARNING)
    assert any("Backup nightly" in note for note in warnings)
    assert any("metadata.finalizers" in note for note in warnings)


def test_only_the_last_applied_annotation_goes() -> None:
    annotations = {"kubectl.kubernetes.io/last-applied-configuration": "{}", "example.com/team": "a"}
    conversion = converted(cronjob(meta={"annotations": annotations, "labels": {"a": "b"}}))
    assert conversion.job_schedule is not None
    metadata = {"name": "a", "labels": {"a": "b"}, "annotations": {"example.com/team": "a"}}
    assert conversion.job_schedule["metadata"] == metadata


def test_what_this_version_cannot_serve_is_told_from_the_same_list() -> None:
    """It goes away by itself once ``unsupported_fields`` no longer names spec.job."""
    from slotkeeper.spec import parse_spec, unsupported_fields

    conversion = converted(cronjob())
    unserved = unsupported_fields(parse_spec(spec_of(conversion)))
    assert [note for note in notes_of(conversion) if "NotYetSupported" in note] == [
        f"spec.jobTemplate: this version of slotkeeper cannot serve {path} yet: the object would be Ready=False, "
        "NotYetSupported"
        for path in unserved
    ]


@pytest.mark.parametrize(
    ("obj", "field"),
    [
        ({"apiVersion": "batch/v2alpha1", "kind": "CronJob"}, "apiVersion"),
        ({"apiVersion": "example.com/v1", "kind": "CronJob"}, "apiVersion"),
        ({"apiVersion": "example.com/v1", "kind": "Backup", "spec": {"schedule": "@daily"}}, "kind"),
        ({**cronjob(), "metadata": {"generateName": "a-"}}, "metadata.name"),
        ({**cronjob(), "metadata": None}, "metadata"),
        ({**cronjob(), "spec": None}, "spec"),
        (cronjob(suspend="yes"), "spec.suspend"),
        (cronjob(schedule=5), "spec.schedule"),
        (cronjob(jobTemplate={}), "spec.jobTemplate.spec.template"),
        (cronjob(timezone="Europe/Berlin"), "spec.timezone"),
        (cronjob(meta={"name": "A_b"}), "metadata.name"),
        (cronjob(pod=container(args=["a\0b"])), "spec.jobTemplate.spec.template.spec.containers[0].args[0]"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_refused_by_the_field(obj: Any, field: str) -> None:
    conversion = converted(obj)
    assert conversion.verdict is Verdict.REFUSED
    assert field in [finding.field for finding in conversion.findings], findings_of(conversion)
    assert conversion.job_schedule is None


def test_a_misspelt_field_is_told_with_the_right_one() -> None:
    assert "write timeZone" in findings_of(converted(cronjob(timezone="Europe/Berlin")))[0]
    assert "write concurrencyPolicy" in findings_of(converted(cronjob(concurencyPolicy="Forbid")))[0]


@pytest.mark.parametrize("kind", ["ConfigMap", "Job", "JobSchedule"])
def test_other_kinds_are_passed_over(kind: str) -> None:
    obj = {"apiVersion": "v1", "kind": kind, "metadata": {"name": "a"}}
    assert converted(obj).verdict is Verdict.IGNORED
