"""Values that charts stumble over: null and zero, another namespace, a place inside another chart, uids given out."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from helm_chart import CHART, DATABASE, Object, find, helm, objects_of, pods, refusal, render

VALUES = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))
#: What Kubernetes defines; in these a null takes one key away.
OF_KUBERNETES = {
    "podSecurityContext", "securityContext", "livenessProbe", "readinessProbe", "startupProbe", "behavior", "labels",
}  # fmt: skip
POOLS = {"pools": [{"name": "a"}]}
CLUSTER_SCOPED = {"ClusterRole", "ClusterRoleBinding", "CustomResourceDefinition", "APIService"}


def _paths(values: Mapping[str, Any], *above: str) -> Iterator[tuple[str, ...]]:
    for name, value in values.items():
        if name != "pools":
            yield (*above, name)
        if isinstance(value, Mapping) and name not in OF_KUBERNETES:
            yield from _paths(value, *above, name)


def _nested(path: tuple[str, ...], value: object) -> Object:
    return {path[0]: value if len(path) == 1 else _nested(path[1:], value)}


def _merged(*given: Mapping[str, Any]) -> Object:
    merged: Object = {}
    for values in given:
        for name, value in values.items():
            below = merged.get(name)
            merged[name] = _merged(below, value) if isinstance(below, dict) and isinstance(value, Mapping) else value
    return merged


EVERYTHING = yaml.safe_load((CHART / "ci" / "everything-values.yaml").read_text(encoding="utf-8"))


@pytest.mark.parametrize("section", [name for name in VALUES if name != "database"])
def test_c144_a_section_that_is_null_falls_back_to_its_defaults(section: str) -> None:
    """Whatever else is set; a certificate that is made anew is none of it."""
    rest = {name: value for name, value in EVERYTHING.items() if name != section}
    rest["externalMetrics"] = {"enabled": False}
    if section in ("controller", "scaling"):
        rest.pop("workers", None)
    assert render({**rest, section: None}) == render(rest)


def test_c144_whatever_is_null_within_a_section_falls_back_too() -> None:
    """All of them at once: as if nothing had been said."""
    nulls: Object = {}
    for path in _paths(VALUES):
        if len(path) > 1 and not isinstance(VALUES.get(path[0]), list):
            nulls = _merged(nulls, _nested(path, None))
    given = {**nulls, "database": {**nulls["database"], "existingSecret": "s"}}
    given["workers"] = {**nulls["workers"], **POOLS}
    assert render(given) == render({"database": {"existingSecret": "s"}, "workers": POOLS})


def test_c144_the_notes_and_a_test_pod_do_not_stumble_over_null() -> None:
    nulls = {name: None for name in VALUES if name != "database"}
    done = helm(
        "install", "slotkeeper", str(CHART), "--dry-run=client", "-f", "-", given=yaml.safe_dump({**nulls, **DATABASE})
    )
    assert done.returncode == 0, done.stderr
    assert "No worker pool" in done.stdout


def test_c144_zero_and_empty_are_what_they_are() -> None:
    objects = render(
        {
            **DATABASE, "controller": {"replicas": 0, "nodeSelector": {}, "podDisruptionBudget": {"enabled": False}},
            "workers": {
                "defaults": {"replicas": 3, "drainSeconds": 20},
                "pools": [{"name": "a", "replicas": 0, "drainSeconds": 0}],
            },
            "metrics": {"maxScheduleSeries": 0}, "rbac": {"aggregateClusterRoles": False},
            "migrations": {"backoffLimit": 0},
        }
    )  # fmt: skip
    controller, worker = (find(objects, "Deployment", f"slotkeeper-{name}") for name in ("controller", "worker-a"))
    assert controller["spec"]["replicas"] == worker["spec"]["replicas"] == 0
    assert "nodeSelector" not in controller["spec"]["template"]["spec"]
    assert worker["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] == 10
    assert "--max-schedule-series=0" in controller["spec"]["template"]["spec"]["containers"][0]["args"]
    assert "--drain-seconds=0" in worker["spec"]["template"]["spec"]["containers"][0]["args"]
    assert find(objects, "Job", "slotkeeper-migrate")["spec"]["backoffLimit"] == 0
    assert {"PodDisruptionBudget"}.isdisjoint(obj["kind"] for obj in objects)
    assert not [obj for obj in objects if obj["metadata"]["name"].endswith(("-view", "-edit"))]


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"workers": {"defaults": {"concurrency": 0}}}, "/workers/defaults/concurrency"),
        ({"workers": {"pools": [{"name": "a", "concurrency": 0}]}}, "/workers/pools/0/concurrency"),
        ({"workers": {"pools": [{"name": "a", "concurrency": None}]}}, "/workers/pools/0/concurrency"),
        ({"controller": {"replicas": -1}}, "/controller/replicas"),
        ({"repliacs": 3}, "repliacs"),
        ({"controller": {"repliacs": 3}}, "repliacs"),
        ({"workers": {"pools": [{"name": "a", "repliacs": 3}]}}, "repliacs"),
        ({"namespaceOverride": "Not A Name"}, "/namespaceOverride"),
    ],
)
def test_c144_what_cannot_be_meant_is_refused_with_its_path(values: Object, words: str) -> None:
    assert words in refusal({**DATABASE, **values})


def test_maps_of_kubernetes_are_those_that_the_template_leaves_alone() -> None:
    """The schema leaves them open; one that is empty by default has nothing to fall back to."""
    schema = json.loads((CHART / "values.schema.json").read_text(encoding="utf-8"))

    text = (CHART / "templates" / "_helpers.tpl").read_text(encoding="utf-8")
    (names,) = [line for line in text.splitlines() if "has $name (list" in line]
    left_alone = {name.strip('"') for name in names.partition("(list")[2].partition(")")[0].split()}
    assert left_alone == OF_KUBERNETES
    for path in _paths(VALUES):
        value, of = VALUES, schema
        for name in path:
            while "$ref" in of:
                of = schema["$defs"][of["$ref"].rpartition("/")[2]]
            value, of = value[name], of["properties"][name]
        while "$ref" in of:
            of = schema["$defs"][of["$ref"].rpartition("/")[2]]
        if isinstance(value, dict) and value:
            assert ("properties" not in of) == (path[-1] in left_alone), path


NAMESPACED = {
    **DATABASE, "namespaceOverride": "ops", "controller": {"namespaces": ["team-a", "team-b"]}, "workers": POOLS,
    "metrics": {"podMonitor": {"enabled": True}}, "prometheusRule": {"enabled": True}, "crds": {"install": False},
    "networkPolicy": {"enabled": True}, "grafanaDashboards": {"enabled": True},
}  # fmt: skip


def _are_where_they_belong(objects: list[Object]) -> None:
    assert not {obj["kind"] for obj in objects} & CLUSTER_SCOPED
    rights = {"Role", "RoleBinding"}
    elsewhere = {
        (obj["metadata"]["namespace"], obj["kind"]) for obj in objects if obj["metadata"]["namespace"] != "ops"
    }
    assert elsewhere == {(name, kind) for name in ("team-a", "team-b", "kube-system") for kind in rights}
    accounts = {obj["metadata"]["name"] for obj in objects if obj["kind"] == "ServiceAccount"}
    for obj in objects:
        if obj["kind"] == "RoleBinding":
            (subject,) = obj["subjects"]
            assert subject["namespace"] == "ops"
            assert subject["name"] in accounts
    for _, pod in pods(objects):
        assert "default.svc" not in str(pod)


def test_c140_everything_is_in_the_other_namespace_but_the_rights_in_those_watched() -> None:
    done = helm("template", "slotkeeper", str(CHART), "-n", "default", "-f", "-", given=yaml.safe_dump(NAMESPACED))
    assert done.returncode == 0, done.stderr
    objects = objects_of(done.stdout)
    _are_where_they_belong(objects)
    worker = find(objects, "Deployment", "slotkeeper-worker-a")["spec"]["template"]["spec"]["containers"][0]
    assert {"--namespaces=ops", "--pool=ops/a"} <= set(worker["args"])
    jobs = [
        rule
        for group in _rules(objects)
        for rule in group["rules"]
        if 'job="ops/slotkeeper-controller"' in rule["expr"]
    ]
    assert jobs, "a PodMonitor's job begins with its namespace"


def _rules(objects: list[Object]) -> list[Object]:
    (rule,) = [obj for obj in objects if obj["kind"] == "PrometheusRule"]
    groups: list[Object] = rule["spec"]["groups"]
    return groups


def test_c140_and_so_it_is_as_a_part_of_another_chart(tmp_path: Path) -> None:
    """With a null in the parent's values, and one on the command line."""
    shutil.copytree(CHART, tmp_path / "charts" / "slotkeeper")
    (tmp_path / "Chart.yaml").write_text("{apiVersion: v2, name: parent, version: 1.0.0}")
    (tmp_path / "values.yaml").write_text(yaml.safe_dump({"slotkeeper": {**NAMESPACED, "scaling": None}}))
    done = helm("template", "platform", str(tmp_path), "-n", "default", "--set", "slotkeeper.listen=null")
    assert done.returncode == 0, done.stderr
    objects = objects_of(done.stdout)
    _are_where_they_belong(objects)
    assert find(objects, "Deployment", "platform-slotkeeper-controller")


def test_c142_uids_may_be_left_to_the_cluster() -> None:
    """A uid in the image or in the values would be refused where the cluster gives one out."""
    nobody = {"runAsUser": None, "runAsGroup": None}
    objects = render({**DATABASE, "workers": POOLS, "podSecurityContext": nobody})
    found = [pod for name, pod in pods(objects) if not name.startswith("Pod/")]
    assert len(found) == 3
    for pod in found:
        assert pod["securityContext"] == {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
        for container in pod["containers"]:
            assert "runAsUser" not in container["securityContext"]
            written = [mount["mountPath"] for mount in container["volumeMounts"] if not mount.get("readOnly")]
            assert written == ["/tmp"]
