"""YAML in and out: read as kubectl reads it, refused with the line where the API server would refuse it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from slotkeeper.convert import NoteKind, Verdict, report_json, report_text, yaml_text
from slotkeeper.spec import read_manifests
from unit.convert.objects import DATA, container, converted, cronjob, findings_of, notes_of, read, spec_of

HEAD = """apiVersion: batch/v1
kind: CronJob
metadata: {name: traps}
spec:
  schedule: 30 1 * * *
  suspend: no
  jobTemplate:
    spec:
      template:
        spec:
          restartPolicy: Never
          containers:
            - name: main
              image: example.com/tool:1
"""


def test_c148_modes_are_numbers_and_times_stay_text() -> None:
    (manifest,) = read_manifests(DATA / "cronjob_yaml_traps.yaml", "")
    spec = spec_of(converted(manifest.object))
    assert spec["cron"] == ["30 1 * * *"]
    assert "suspend" not in spec, "suspend: no is false"
    pod = spec["job"]["template"]["spec"]["template"]["spec"]
    assert [volume["configMap"]["defaultMode"] for volume in pod["volumes"]] == [493, 365]
    env = {variable["name"]: variable["value"] for variable in pod["containers"][0]["env"]}
    assert env == {"START": "12:30", "DAY": "2026-01-01"}


@pytest.mark.parametrize(
    ("written", "told"),
    [("1e3", "a number"), ("08", "a number"), ("on", "the boolean true"), ("0x1F", "a number")],
)
def test_c148_a_number_or_a_boolean_in_env_is_refused_with_its_line(written: str, told: str) -> None:
    env = f"""              env:
                - {{name: A, value: fine}}
                - name: B
                  value: {written}
"""
    (manifest,) = read(HEAD + env)
    conversion = converted(manifest.object)
    assert conversion.verdict is Verdict.REFUSED
    assert conversion.job_schedule is None
    (finding,) = conversion.findings
    assert finding.field == "spec.jobTemplate.spec.template.spec.containers[0].env[1].value"
    assert told in finding.problem
    assert "quotes" in finding.instead
    line = (HEAD + env).splitlines().index(f"                  value: {written}") + 1
    assert manifest.where(finding.field) == f"file.yaml:{line}"


def test_c148_what_was_read_as_text_is_written_so_that_kubectl_reads_text_again() -> None:
    values = [
        "12:30",
        "2026-01-01",
        "1e3",
        "08",
        "on",
        "no",
        "0o755",
        "0555",
        "~",
        "",
        "null",
        "1_000",
        ".5",
        "- a",
        "y",
        "N",
    ]
    env = [{"name": f"V{index}", "value": value} for index, value in enumerate(values)]
    conversion = converted(cronjob(pod=container(env=env)))
    assert conversion.job_schedule is not None
    (again,) = read(yaml_text([conversion.job_schedule]))
    pod = again.object["spec"]["job"]["template"]["spec"]["template"]["spec"]
    assert [variable["value"] for variable in pod["containers"][0]["env"]] == values


@pytest.mark.parametrize(
    ("pod", "field"),
    [
        (container(args=["--port", 8080]), "containers[0].args[1]"),
        (container(command=["sleep", 1.5]), "containers[0].command[1]"),
        ({"initContainers": [{"name": "i", "image": "i", "env": [{"name": True}]}]}, "initContainers[0].env[0].name"),
        ({"nodeSelector": {"example.com/spot": True}}, "nodeSelector.example.com/spot"),
        ({"tolerations": [{"key": "spot", "value": True}]}, "tolerations[0].value"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_other_texts_are_looked_at_too(pod: dict[str, Any], field: str) -> None:
    (finding,) = converted(cronjob(pod=pod)).findings
    assert finding.field == f"spec.jobTemplate.spec.template.spec.{field}"


@pytest.mark.parametrize(
    "pod",
    [
        container(env=[{"name": "PASSWORD", "value": 84731902}]),
        container(env=[{"name": "PASSWORD", "value": [84731902]}]),
        container(args=["--password", 84731902]),
        container(command=["login", 84731902.5]),
    ],
)
def test_a_number_that_may_be_a_password_is_not_repeated(pod: dict[str, Any]) -> None:
    conversion = converted(cronjob(pod=pod))
    told = [(lambda field: f"file.yaml {field}", conversion)]
    assert "YAML makes it a " in report_text(told)
    assert "84731902" not in report_text(told) + str(report_json(told))


def test_another_number_is_told() -> None:
    (finding,) = converted(cronjob(pod={"nodeSelector": {"example.com/size": 8}})).findings
    assert "YAML makes it the number 8, " in finding.problem


def test_in_ascii_alone_kubectl_reads_the_same_text() -> None:
    values = ["–", "é\nè", "\U0001f600", "\x85", "plain"]
    conversion = converted(cronjob(pod=container(args=values)))
    assert conversion.job_schedule is not None
    text = yaml_text([conversion.job_schedule], every_character=False)
    assert text.isascii()
    (again,) = read(text)
    pod = again.object["spec"]["job"]["template"]["spec"]["template"]["spec"]
    assert pod["containers"][0]["args"] == values


def test_labels_of_the_cronjob_itself_must_be_text_as_well() -> None:
    (finding,) = converted(cronjob(meta={"labels": {"tier": 1}})).findings
    assert finding.field == "metadata.labels.tier"


def test_a_null_value_is_an_empty_one() -> None:
    env = [{"name": "EMPTY", "value": None}]
    assert converted(cronjob(pod=container(env=env))).verdict is Verdict.SAME


def test_all_findings_are_told_at_once() -> None:
    obj = cronjob("H * * * *", pod=container(args=[1], env=[{"name": "A", "value": 2}]), concurencyPolicy="Forbid")
    told = findings_of(converted(obj))
    assert len(told) == 4
    for words in ("spec.concurencyPolicy", "args[0]", "env[0].value", "'H'"):
        assert any(words in finding for finding in told), words


def test_scripts_stay_legible() -> None:
    script = "set -eu\n# comment stays\ncase $(uname -m) in x86_64) A=amd64;; esac\n"
    conversion = converted(cronjob(pod=container(args=[script])))
    assert conversion.job_schedule is not None
    written = yaml_text([conversion.job_schedule])
    assert "- |\n" in written
    assert "  # comment stays\n" in written
    (again,) = read(written)
    pod = again.object["spec"]["job"]["template"]["spec"]["template"]["spec"]
    assert pod["containers"][0]["args"] == [script]


def test_what_stands_twice_is_written_twice() -> None:
    shared = {"app": "a"}
    assert yaml_text([{"labels": shared, "matchLabels": shared}]).count("app: a") == 2


_TEXTS = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=12) | st.text(
    "0123456789.:_eExo-+ ~#'\"\n\t|>&*!%@,[]{}yn", max_size=12
)
_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | _TEXTS,
    lambda children: st.lists(children, max_size=3) | st.dictionaries(_TEXTS, children, max_size=3),
    max_leaves=8,
)


@settings(deadline=None)
@example({"A\x85": ["b\u2028c", "\ufeff"]})
@given(_VALUES)
def test_whatever_is_written_is_read_back(value: object) -> None:
    obj = {"apiVersion": "v1", "kind": "ConfigMap", "data": {"value": value}}
    (again,) = read(yaml_text([obj]))
    assert again.object == obj


def test_a_secret_in_plain_sight_is_warned_of() -> None:
    env = [
        {"name": "DB_PASSWORD", "value": "hunter2"},
        {"name": "apiKey", "value": "k"},
        {"name": "DATABASE_URL", "value": "postgres://app:hunter2@db/app"},
        {"name": "DB_PASSWORD_FILE", "value": "/run/secrets/db"},
        {"name": "MAX_TOKENS", "value": "100"},
        {"name": "EMPTY_SECRET", "value": ""},
        {"name": "TOKEN", "value": "$(OTHER)"},
        {"name": "SAFE_TOKEN", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}},
        {"name": "URL", "value": "https://example.com:8443/a@b"},
        {"name": "REFERENCE_URL", "value": "postgres://app:$(PASSWORD)@db/app"},
    ]
    warnings = [
        note for note in notes_of(converted(cronjob(pod=container(env=env))), NoteKind.WARNING) if "literal" in note
    ]
    assert [index for index in range(len(env)) if any(f"env[{index}]" in note for note in warnings)] == [0, 1, 2]
    assert "hunter2" not in " ".join(warnings)
