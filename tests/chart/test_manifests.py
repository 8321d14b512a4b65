"""What the chart renders to: valid for every supported Kubernetes, restricted, least rights, no secret in the open."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from psycopg.conninfo import conninfo_to_dict

from helm_chart import CHART, CI_FILES, DATABASE, RELEASE, Object, find, helm, pods, refusal, render

KUBERNETES = ("1.32", "1.33", "1.34", "1.35", "1.36")
#: Of operators that a cluster may have; Kubernetes has no schema for them.
FOREIGN = {"PodMonitor", "ServiceMonitor", "PrometheusRule", "ScaledObject", "TriggerAuthentication"}
#: Kinds without a namespace.
CLUSTER_SCOPED = {"ClusterRole", "ClusterRoleBinding", "CustomResourceDefinition", "APIService"}
EVERYTHING = CHART / "ci" / "everything-values.yaml"
WORKER_ONLY = CHART / "ci" / "worker-only-values.yaml"


@pytest.fixture(scope="module", autouse=True)
def _schemas_are_read_once() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kubernetes_validate.utils, "schema_contents", cache(kubernetes_validate.utils.schema_contents))
        yield


each_file = pytest.mark.parametrize("file", CI_FILES, ids=lambda file: file.stem)


@each_file
def test_helm_lints_it_strictly(file: Path) -> None:
    done = helm("lint", "--strict", str(CHART), "-f", str(file))
    assert done.returncode == 0, done.stdout + done.stderr


@each_file
@pytest.mark.parametrize("version", KUBERNETES)
def test_manifests_are_valid(file: Path, version: str) -> None:
    for obj in render(file):
        if obj["kind"] not in FOREIGN:
            kubernetes_validate.validate(obj, version, strict=True)


@each_file
def test_every_object_has_its_labels_and_its_namespace_and_is_there_once(file: Path) -> None:
    seen = set()
    for obj in render(file):
        key = (obj["kind"], obj["metadata"].get("namespace"), obj["metadata"]["name"])
        assert key not in seen
        seen.add(key)
        if obj["metadata"]["name"] == f"{RELEASE}-extra":
            continue
        assert ("namespace" in obj["metadata"]) == (obj["kind"] not in CLUSTER_SCOPED), key
        if obj["kind"] != "CustomResourceDefinition":
            assert obj["metadata"]["labels"]["app.kubernetes.io/instance"] == RELEASE, key


@each_file
def test_pods_fit_the_restricted_standard(file: Path) -> None:
    for name, pod in pods(render(file)):
        assert not {"hostNetwork", "hostPID", "hostIPC"} & pod.keys(), name
        security = pod["securityContext"]
        assert security["runAsNonRoot"] is True, name
        assert security["runAsUser"] > 0, name
        assert security["seccompProfile"] == {"type": "RuntimeDefault"}, name
        for container in pod["containers"] + pod.get("initContainers", []):
            own = container["securityContext"]
            assert own["allowPrivilegeEscalation"] is False, name
            assert own["readOnlyRootFilesystem"] is True, name
            assert own["capabilities"] == {"drop": ["ALL"]}, name
            assert "privileged" not in own, name
            # A read-only root leaves Python and commands only this.
            assert {"name": "tmp", "mountPath": "/tmp"} in container["volumeMounts"], name
        for volume in pod.get("volumes", []):
            assert volume.keys() - {"name"} <= {"emptyDir", "secret", "configMap"}, name


@each_file
def test_only_the_controller_has_a_token_unless_a_pool_asks_for_one(file: Path) -> None:
    for name, pod in pods(render(file)):
        wanted = name.endswith(("-controller", "-worker-reports"))
        assert pod["automountServiceAccountToken"] is wanted, name


@each_file
def test_selectors_match_the_pods(file: Path) -> None:
    objects = render(file)
    labels = {
        obj["metadata"]["name"]: obj["spec"]["template"]["metadata"]["labels"]
        for obj in objects
        if obj["kind"] in ("Deployment", "StatefulSet")
    }
    for obj in objects:
        spec = obj.get("spec", {})
        selector: dict[str, str] | None = None
        if obj["kind"] in ("PodDisruptionBudget", "PodMonitor", "Deployment", "StatefulSet"):
            selector = spec["selector"]["matchLabels"]
        elif obj["kind"] == "Service":
            selector = spec["selector"]
        elif obj["kind"] == "NetworkPolicy":
            selector = spec["podSelector"]["matchLabels"]
        if selector is None:
            continue
        matched = {name for name, own in labels.items() if selector.items() <= own.items()}
        assert matched, (obj["kind"], obj["metadata"]["name"])
        if obj["metadata"]["name"] in labels:
            assert matched == {obj["metadata"]["name"]}


@pytest.mark.parametrize(
    ("values", "ports"),
    [
        ({"database": {"existingSecret": "s"}}, [5432]),
        ({"database": {"host": "h", "port": 6432}}, [6432]),
        ({"database": {"host": "h", "port": 6432, "directHost": "x", "directPort": 5433}}, [6432, 5433]),
        ({"database": {"host": "h", "directHost": "x"}}, [5432]),
        ({"database": {"host": "h", "port": 6432}, "networkPolicy": {"databasePorts": [5434]}}, [5434]),
    ],
)
def test_the_controller_may_reach_the_ports_of_its_database(values: Object, ports: list[int]) -> None:
    policies = {
        "enabled": True,
        "databaseTo": [{"ipBlock": {"cidr": "10.0.0.9/32"}}],
        **values.get("networkPolicy", {}),
    }
    policy = find(render({**values, "networkPolicy": policies}), "NetworkPolicy", "slotkeeper-controller")
    (rule,) = [rule for rule in policy["spec"]["egress"] if "to" in rule]
    assert rule["ports"] == [{"port": port, "protocol": "TCP"} for port in ports]


SECRET = "p'A\"s\\s $(word) #: %"
BOTH = {"slotkeeper-database", "slotkeeper-migrate"}


@pytest.mark.parametrize(
    ("values", "names"),
    [
        ({"database": {"dsn": f"host=h password={SECRET}", "directDsn": f"host=x password={SECRET}"}}, BOTH),
        ({"database": {"host": "h", "password": SECRET, "directHost": "x"}}, BOTH),
        ({"database": {"existingSecret": "s"}, "migrations": {"dsn": f"password={SECRET}"}}, {"slotkeeper-migrate"}),
    ],
)
@pytest.mark.parametrize("mode", ["hook", "job"])
def test_what_is_secret_stands_only_in_secrets(values: Object, names: set[str], mode: str) -> None:
    values = {
        **values, "workers": {"pools": [{"name": "a"}]}, "migrations": {**values.get("migrations", {}), "mode": mode},
    }  # fmt: skip
    holders = [obj for obj in render(values) if SECRET in str(obj) or repr(SECRET)[1:-1] in str(obj)]
    assert {(obj["kind"], obj["metadata"]["name"]) for obj in holders} == {("Secret", name) for name in names}
    for obj in holders:
        # Whole and as it was given: any character may be in it.
        assert all(text.endswith(SECRET) for text in obj["stringData"].values())


@each_file
def test_no_argument_is_a_secret(file: Path) -> None:
    for name, pod in pods(render(file)):
        for container in pod["containers"]:
            for text in [*container.get("command", []), *container.get("args", [])]:
                assert not re.search(r"postgres(ql)?://|password", text, re.IGNORECASE), name
            for variable in container.get("env", []):
                if variable["name"] in ("PGPASSWORD", "POSTGRES_PASSWORD"):
                    assert "secretKeyRef" in variable["valueFrom"], name


def test_a_worker_only_release_has_nothing_cluster_scoped_and_no_rights() -> None:
    objects = render(WORKER_ONLY)
    kinds = {obj["kind"] for obj in objects}
    assert not kinds & CLUSTER_SCOPED
    assert not kinds & {"Role", "RoleBinding"}
    assert {obj["metadata"]["namespace"] for obj in objects} == {"slotkeeper"}


def test_the_controllers_rights_are_all_that_there_are() -> None:
    objects = render(
        {**DATABASE, "externalMetrics": {"enabled": True, "requestheaderClientCa": "-----BEGIN CERTIFICATE-----"}}
    )
    cluster = find(objects, "ClusterRole", "slotkeeper-slotkeeper-controller")
    rules = {
        (group, kind): rule["verbs"]
        for rule in cluster["rules"]
        for group in rule["apiGroups"]
        for kind in rule["resources"]
    }
    assert rules == {
        ("slotkeeper.dev", "jobschedules"): ["get", "list", "watch"],
        ("slotkeeper.dev", "jobschedules/status"): ["patch"],
        ("", "events"): ["create", "patch"],
    }
    bindings = [obj for obj in objects if obj["kind"] in ("RoleBinding", "ClusterRoleBinding")]
    assert [(obj["kind"], obj["metadata"].get("namespace")) for obj in bindings] == [
        ("ClusterRoleBinding", None),
        ("RoleBinding", "kube-system"),
    ]


def test_watched_namespaces_get_a_role_each_instead_of_a_cluster_role() -> None:
    objects = render({**DATABASE, "controller": {"namespaces": ["a", "b"]}, "rbac": {"aggregateClusterRoles": False}})
    assert {obj["kind"] for obj in objects} & CLUSTER_SCOPED == {"CustomResourceDefinition"}
    assert {obj["metadata"]["namespace"] for obj in objects if obj["kind"] == "Role"} == {"a", "b", "kube-system"}
    assert "--namespaces=a,b" in _container(objects, "slotkeeper-controller")["args"]


def test_people_get_jobschedules_by_the_clusters_own_roles() -> None:
    objects = render(DATABASE)
    view, edit = (find(objects, "ClusterRole", f"slotkeeper-slotkeeper-{role}") for role in ("view", "edit"))
    aggregated = "rbac.authorization.k8s.io/aggregate-to-"
    assert [view["metadata"]["labels"][aggregated + role] for role in ("view", "edit", "admin")] == ["true"] * 3
    assert aggregated + "view" not in edit["metadata"]["labels"]
    assert [edit["metadata"]["labels"][aggregated + role] for role in ("edit", "admin")] == ["true"] * 2
    assert not {"create", "update", "patch", "delete"} & set(view["rules"][0]["verbs"])
    for role in (view, edit):
        assert role["rules"][0]["resources"] == ["jobschedules"]


def _container(objects: list[Object], deployment: str) -> Object:
    container: Object = find(objects, "Deployment", deployment)["spec"]["template"]["spec"]["containers"][0]
    return container


@pytest.mark.parametrize(("drain", "grace"), [(30, 40), (0.5, 11), (300, 310)])
def test_a_worker_gets_its_drain_and_ten_seconds(drain: float, grace: int) -> None:
    objects = render({**DATABASE, "workers": {"pools": [{"name": "a", "drainSeconds": drain}]}})
    pod = find(objects, "Deployment", "slotkeeper-worker-a")["spec"]["template"]["spec"]
    assert pod["terminationGracePeriodSeconds"] == grace


def test_probes_ask_the_http_port() -> None:
    objects = render({**DATABASE, "workers": {"pools": [{"name": "a", "livenessProbe": {"failureThreshold": 9}}]}})
    for name in ("slotkeeper-controller", "slotkeeper-worker-a"):
        container = _container(objects, name)
        assert "--listen=0.0.0.0:8080" in container["args"]
        assert container["ports"] == [{"name": "http", "containerPort": 8080}]
        assert container["livenessProbe"]["httpGet"] == {"path": "/livez", "port": "http"}
        assert container["readinessProbe"]["httpGet"] == {"path": "/readyz", "port": "http"}
    assert _container(objects, "slotkeeper-worker-a")["livenessProbe"]["failureThreshold"] == 9


@pytest.mark.parametrize("mode", ["podMonitor", "serviceMonitor"])
def test_two_scrapes_of_one_pod_write_two_series_up(mode: str) -> None:
    objects = render({**DATABASE, "metrics": {mode: {"enabled": True}}, "workers": {"pools": [{"name": "a"}]}})
    monitors = [obj for obj in objects if obj["kind"].endswith("Monitor")]
    assert [obj["metadata"]["name"] for obj in monitors] == ["slotkeeper-controller", "slotkeeper-worker"]
    endpoints = monitors[0]["spec"]["podMetricsEndpoints" if mode == "podMonitor" else "endpoints"]
    assert [endpoint["path"] for endpoint in endpoints] == ["/metrics", "/metrics/schedules"]
    for endpoint in endpoints:
        assert endpoint["honorLabels"] is True
        assert endpoint["relabelings"] == [{"sourceLabels": ["__metrics_path__"], "targetLabel": "metrics_path"}]


def test_a_pool_that_is_scaled_has_no_replicas() -> None:
    objects = render(EVERYTHING)
    for pool in ("plain", "asked", "prometheus", "own"):
        assert "replicas" not in find(objects, "Deployment", f"slotkeeper-worker-{pool}")["spec"]
    assert (
        find(render({**DATABASE, "workers": {"pools": [{"name": "a"}]}}), "Deployment", "slotkeeper-worker-a")["spec"][
            "replicas"
        ]
        == 1
    )


def test_the_plain_autoscaler_asks_for_its_pool() -> None:
    scaler = find(render(EVERYTHING), "HorizontalPodAutoscaler", "slotkeeper-worker-plain")["spec"]
    assert (scaler["minReplicas"], scaler["maxReplicas"]) == (1, 20)
    (metric,) = scaler["metrics"]
    # The value is a number of workers, and an HPA divides it by this target.
    assert metric["external"] == {
        "metric": {"name": "slotkeeper_workers_wanted", "selector": {"matchLabels": {"pool": "plain"}}},
        "target": {"type": "AverageValue", "averageValue": "1"},
    }


def test_keda_asks_the_controller_and_keeps_the_pool_while_nobody_answers() -> None:
    objects = render(EVERYTHING)
    scaled = find(objects, "ScaledObject", "slotkeeper-worker-asked")["spec"]
    (trigger,) = scaled["triggers"]
    assert trigger["metadata"] == {
        "url": "http://slotkeeper-controller.slotkeeper.svc:8080/scaling/v1/namespaces/slotkeeper/pools/asked",
        "valueLocation": "workers_wanted", "targetValue": "1", "authMode": "bearer",
    }  # fmt: skip
    assert scaled["fallback"]["behavior"] == "currentReplicas"
    assert scaled["minReplicaCount"] == 0
    authentication = find(objects, "TriggerAuthentication", trigger["authenticationRef"]["name"])
    assert authentication["spec"]["secretTargetRef"][0]["name"] == "slotkeeper-scaling"
    assert "--scaling-token-file=/etc/slotkeeper/scaling/token" in _container(objects, "slotkeeper-controller")["args"]


def test_keda_by_prometheus_takes_no_answer_for_an_error() -> None:
    (trigger,) = find(render(EVERYTHING), "ScaledObject", "slotkeeper-worker-prometheus")["spec"]["triggers"]
    assert trigger["metadata"]["ignoreNullValues"] == "false"
    assert (
        trigger["metadata"]["query"] == 'max(slotkeeper_pool_workers_wanted{namespace="slotkeeper",pool="prometheus"})'
    )


def test_who_scales_a_pool_himself_gets_no_autoscaler() -> None:
    names = [
        obj["metadata"]["name"]
        for obj in render(EVERYTHING)
        if obj["kind"] in ("HorizontalPodAutoscaler", "ScaledObject")
    ]
    assert sorted(names) == ["slotkeeper-worker-asked", "slotkeeper-worker-plain", "slotkeeper-worker-prometheus"]


def test_a_dsn_in_parts_is_quoted_and_holds_no_password() -> None:
    container = _container(render(EVERYTHING), "slotkeeper-controller")
    variables = {variable["name"]: variable for variable in container["env"]}
    assert conninfo_to_dict(variables["SLOTKEEPER_DSN"]["value"]) == {
        "host": "pooler.databases.svc", "port": "6432", "dbname": "slot keeper's", "user": "slotkeeper",
        "sslmode": "verify-full", "sslrootcert": "/etc/slotkeeper/database-ca/ca.crt",
    }  # fmt: skip
    assert "host='postgres.databases.svc' port=5432" in variables["SLOTKEEPER_DIRECT_DSN"]["value"]
    assert variables["PGPASSWORD"]["valueFrom"] == {"secretKeyRef": {"name": "slotkeeper-database", "key": "password"}}
    assert {"name": "database-ca", "mountPath": "/etc/slotkeeper/database-ca", "readOnly": True} in container[
        "volumeMounts"
    ]


def test_parts_of_a_dsn_may_have_any_character() -> None:
    odd = r"a'b\c $(HOME) d"
    objects = render({"database": {"host": "h", "user": odd, "existingSecret": "s"}})
    value = _env(objects, "Deployment", "slotkeeper-controller")["SLOTKEEPER_DSN"]["value"]
    # Kubernetes makes $( of $$(.
    assert conninfo_to_dict(value.replace("$$(", "$(")) == {
        "host": "h", "port": "5432", "dbname": "slotkeeper", "user": odd,
    }  # fmt: skip


def _env(objects: list[Object], kind: str, name: str) -> dict[str, Any]:
    (found,) = [pod for own, pod in pods(objects) if own.startswith(f"{kind}/{name}")]
    return {variable["name"]: variable for variable in found["containers"][0]["env"]}


def test_each_part_may_have_its_own_login() -> None:
    objects = render(CHART / "ci" / "namespaced-values.yaml")
    assert _env(objects, "Job", "slotkeeper-migrate")["SLOTKEEPER_DSN"]["valueFrom"]["secretKeyRef"] == {
        "name": "slotkeeper-owner-login",
        "key": "uri",
    }
    controller = _env(objects, "Deployment", "slotkeeper-controller")
    assert controller["SLOTKEEPER_DSN"]["valueFrom"]["secretKeyRef"]["key"] == "pooled"
    assert controller["SLOTKEEPER_DIRECT_DSN"]["valueFrom"]["secretKeyRef"]["key"] == "direct"
    assert (
        _env(objects, "Deployment", "slotkeeper-worker-billing")["SLOTKEEPER_DSN"]["valueFrom"]["secretKeyRef"]["name"]
        == "slotkeeper-worker-login"
    )
    objects = render(EVERYTHING)
    migrate = _env(objects, "Job", "slotkeeper-migrate")
    assert "host='postgres.databases.svc'" in migrate["SLOTKEEPER_DSN"]["value"]
    assert "user='slotkeeper_owner'" in migrate["SLOTKEEPER_DSN"]["value"]
    assert migrate["PGPASSWORD"]["valueFrom"]["secretKeyRef"] == {"name": "slotkeeper-owner", "key": "password"}


def test_migrations_go_by_a_hook_by_the_way_to_the_server_itself() -> None:
    objects = render({"database": {"existingSecret": "s", "dsnKey": "pooled", "directDsnKey": "direct"}})
    job = find(objects, "Job", "slotkeeper-migrate")
    assert job["metadata"]["annotations"]["helm.sh/hook"] == "pre-install,pre-upgrade"
    assert _env(objects, "Job", "slotkeeper-migrate")["SLOTKEEPER_DSN"]["valueFrom"]["secretKeyRef"]["key"] == "direct"


def test_an_ordinary_job_of_migrations_has_another_name_when_anything_about_it_is_different() -> None:
    def name(**more: Any) -> str:
        objects = render({**DATABASE, "migrations": {"mode": "job"}, **more})
        (job,) = [obj for obj in objects if obj["kind"] == "Job"]
        assert "annotations" not in job["metadata"]
        return str(job["metadata"]["name"])

    assert name() == name(controller={"replicas": 3})
    assert name() != name(image={"tag": "2"})


def test_no_migration_where_none_is_wanted() -> None:
    assert not [obj for obj in render({**DATABASE, "migrations": {"enabled": False}}) if obj["kind"] == "Job"]


def test_the_crd_can_be_left_out_and_is_kept() -> None:
    (crd,) = [obj for obj in render(DATABASE) if obj["kind"] == "CustomResourceDefinition"]
    assert crd["metadata"]["annotations"]["helm.sh/resource-policy"] == "keep"
    for values, count in (({"install": False}, 0), ({"keep": False}, 1)):
        found = [obj for obj in render({**DATABASE, "crds": values}) if obj["kind"] == "CustomResourceDefinition"]
        assert len(found) == count
        assert all("annotations" not in obj["metadata"] for obj in found)


def test_the_provider_of_metrics_believes_one_ca_and_is_believed_by_its_own() -> None:
    objects = render(EVERYTHING)
    args = _container(objects, "slotkeeper-external-metrics")["args"]
    assert "--requestheader-allowed-names=front-proxy-client" in args
    secret = find(objects, "Secret", "slotkeeper-external-metrics-tls")
    assert (
        find(objects, "APIService", "v1beta1.external.metrics.k8s.io")["spec"]["caBundle"] == secret["data"]["ca.crt"]
    )
    assert "insecureSkipTLSVerify" not in str(objects)


def _pool(**values: Any) -> Object:
    return {**DATABASE, "workers": {"pools": [{"name": "a", **values}]}}


def _scaled(**values: Any) -> Object:
    return _pool(autoscaling={"enabled": True, **values})


NO_CONTROLLER = {"controller": {"enabled": False}, "migrations": {"enabled": False}}
TWO_MONITORS = {"podMonitor": {"enabled": True}, "serviceMonitor": {"enabled": True}}


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({}, "no database"),
        ({"migrations": {"enabled": False}}, "no database: set database.existingSecret"),
        ({"database": {"existingSecret": "a", "dsn": "b"}}, "keep one of them"),
        ({"database": {"host": "a", "dsn": "b"}}, "whole or in parts"),
        ({**DATABASE, "trialPostgres": {"enabled": True}}, "trialPostgres.enabled is set beside"),
        ({"trialPostgres": {"enabled": True}, "migrations": {"mode": "hook"}}, "set it to job"),
        ({**DATABASE, "migrations": {"user": "a"}}, "migrations.user is set without database.host"),
        ({**DATABASE, "workers": {"pools": [{"name": "a"}, {"name": "a"}]}}, "names a twice"),
        (_pool(database={"user": "b"}), "the pool a names database.user"),
        (_pool(extraEnv=[{"name": "SLOTKEEPER_DSN"}]), "use them or extraArgs"),
        (_pool(extraEnv=[{"name": "POD_NAME"}]), "rename it"),
        (_scaled(minReplicas=11), "above maxReplicas"),
        (_scaled(kind="keda-prometheus"), "autoscaling.prometheus.serverAddress"),
        ({**_scaled(kind="keda"), **NO_CONTROLLER}, "autoscaling.keda.url"),
        ({"workers": {"pools": [{"name": "a"}]}, **NO_CONTROLLER}, "the pool a has no database"),
        ({**DATABASE, "externalMetrics": {"enabled": True}}, "externalMetrics.requestheaderClientCa is empty"),
        ({**DATABASE, "metrics": TWO_MONITORS}, "scraped twice"),
        ({**DATABASE, "controler": {}}, "controler"),
        (_pool(leaseSecond=1), "leaseSecond"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_wrong_values_are_refused_with_words(values: Object, words: str) -> None:
    assert words in refusal(values)


def _notes(values: Object) -> str:
    done = helm(
        "install", RELEASE, str(CHART), "--dry-run=client", "-f", "-", given=yaml.safe_dump(values)
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout.partition("\nNOTES:\n")[2]


def test_the_notes_say_what_is_missing() -> None:
    text = _notes({"database": {"dsn": "x"}, "migrations": {"enabled": False}})
    for words in (
        "No worker pool",
        "a DSN or a password stands in the values",
        "Nothing migrates the database",
        "No alerts",
    ):
        assert words in text
    quiet = _notes({**DATABASE, "prometheusRule": {"enabled": True}, "workers": {"pools": [{"name": "a"}]}})
    for words in ("No worker pool", "WARNING", "Nothing migrates", "No alerts"):
        assert words not in quiet
    trial = _notes({"trialPostgres": {"enabled": True}, "workers": {"pools": [{"name": "a", "allow": ["command"]}]}})
    assert "its data goes with its pod" in trial
    assert "it needs a pool that allows" not in trial
