"""The chart on a real API server: what Helm installs is accepted, by whom, and beside what."""

from __future__ import annotations

import base64
import json
import subprocess
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml
from api_server import ApiServer, eventually
from jobschedule_objects import manifest

from helm_chart import CHART, helm, objects_of

POLICY = Path(__file__).parents[2] / "docs" / "examples" / "forbid-command-and-job.yaml"
#: The CRD is there already, and nothing here runs that a hook would wait for.
THERE = {
    "crds": {"install": False},
    "migrations": {"enabled": False},
    "database": {"existingSecret": "slotkeeper-database"},
}
POOLS = {"pools": [{"name": "a", "autoscaling": {"enabled": True}, "podDisruptionBudget": {"enabled": True}}]}
Helm = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def release(api_server: ApiServer, namespace: str) -> Iterator[Helm]:
    """Runs Helm on the API server in the test's namespace; what it installed is gone afterwards."""

    def run(*arguments: str, values: dict[str, Any] | None = None) -> subprocess.CompletedProcess[str]:
        place = ["--kubeconfig", str(api_server.kubeconfig), "-n", namespace]
        if values is None:
            return helm(*arguments, *place)
        return helm(*arguments, str(CHART), *place, "-f", "-", given=yaml.safe_dump(values))

    yield run
    for name in run("list", "--all", "--short").stdout.split():
        run("uninstall", name, "--no-hooks")


def _get(api_server: ApiServer, *arguments: str) -> Any:
    return json.loads(api_server.kubectl("get", *arguments, "-o", "json").stdout)


@pytest.mark.parametrize("given_out", [False, True], ids=["of the image", "given out by the cluster"])
def test_c142_pods_of_every_kind_are_let_in_where_the_restricted_standard_is_enforced(
    api_server: ApiServer, namespace: str, release: Helm, given_out: bool
) -> None:
    """With the uids of image and values, and with one that the cluster gives to pods which ask for none."""
    api_server.kubectl("label", "namespace", namespace, "pod-security.kubernetes.io/enforce=restricted")
    done = release(
        "install", "all",
        values={
            "crds": {"install": False}, "trialPostgres": {"enabled": True}, "networkPolicy": {"enabled": True},
            "workers": POOLS,
            **({"podSecurityContext": {"runAsUser": None, "runAsGroup": None}} if given_out else {}),
        },
    )  # fmt: skip
    assert done.returncode == 0, done.stderr

    # Nothing makes pods of them here, so they are asked for as their controllers would ask.
    makers = _get(api_server, "-n", namespace, "deployments,statefulsets,jobs")["items"]
    templates = {maker["metadata"]["name"]: maker["spec"]["template"] for maker in makers}
    assert {template["metadata"]["labels"]["app.kubernetes.io/component"] for template in templates.values()} == {
        "controller", "worker", "migrate", "trial-postgres",
    }  # fmt: skip
    hooks = [hook for hook in objects_of(release("get", "hooks", "all").stdout) if hook["kind"] == "Pod"]
    assert [hook["metadata"]["name"] for hook in hooks] == ["all-slotkeeper-test-ready"], "of `helm test`"
    for name, template in [*templates.items(), *((hook["metadata"]["name"], hook) for hook in hooks)]:
        pod = {"apiVersion": "v1", "kind": "Pod", **template}
        pod["metadata"] = {**pod["metadata"], "name": "pod", "namespace": namespace}
        pod["spec"].pop("topologySpreadConstraints", None)  # names a label that the controller adds
        if given_out and name != "all-slotkeeper-trial-postgres":
            assert "runAsUser" not in pod["spec"]["securityContext"]
            pod["spec"]["securityContext"]["runAsUser"] = 1000650000
        done = api_server.kubectl("create", "--dry-run=server", "-f", "-", given=yaml.safe_dump(pod), check=False)
        assert done.returncode == 0, (name, done.stderr)


def test_a_team_installs_its_workers_with_the_rights_of_its_namespaces_admin(
    api_server: ApiServer, namespace: str, release: Helm
) -> None:
    # What the cluster's role admin is aggregated from; nothing aggregates here.
    for role in ("view", "edit", "admin"):
        api_server.kubectl(
            "-n", namespace, "create", "rolebinding", role, f"--clusterrole=system:aggregate-to-{role}", "--user=team"
        )
    team = {
        **THERE,
        "controller": {"enabled": False},
        "networkPolicy": {"enabled": True},
        "workers": POOLS,
    }
    done = release("install", "team", "--kube-as-user", "team", values=team)
    assert done.returncode == 0, done.stderr
    assert _get(api_server, "-n", namespace, "deployment", "team-slotkeeper-worker-a")
    done = release("uninstall", "team", "--kube-as-user", "team")
    assert done.returncode == 0, done.stderr
    # And these rights are less than a whole release needs.
    done = release("install", "whole", "--kube-as-user", "team", values=THERE)
    assert done.returncode != 0
    assert "forbidden" in done.stderr


def test_the_provider_of_metrics_keeps_its_certificate_and_yields_to_another(
    api_server: ApiServer, namespace: str, release: Helm
) -> None:
    values = {**THERE, "externalMetrics": {"enabled": True}}
    done = release("install", "one", values=values)
    assert done.returncode == 0, done.stderr
    name = "one-slotkeeper-external-metrics"
    service = _get(api_server, "apiservice", "v1beta1.external.metrics.k8s.io")
    secret = _get(api_server, "-n", namespace, "secret", f"{name}-tls")
    assert service["spec"]["service"] == {"name": name, "namespace": namespace, "port": 443}
    assert service["spec"]["caBundle"] == secret["data"]["ca.crt"]
    certificate = base64.b64decode(secret["data"]["tls.crt"]).decode()
    assert f"DNS:{name}.{namespace}.svc" in _shown(certificate)
    # It believes those whom the cluster names, as it names them.
    known = _get(api_server, "-n", "kube-system", "configmap", "extension-apiserver-authentication")["data"]
    own = _get(api_server, "-n", namespace, "configmap", name)["data"]["requestheader-client-ca.crt"]
    assert own.strip() == known["requestheader-client-ca-file"].strip()
    args = _get(api_server, "-n", namespace, "deployment", name)["spec"]["template"]["spec"]["containers"][0]["args"]
    allowed = json.loads(known["requestheader-allowed-names"])
    assert f"--requestheader-allowed-names={','.join(allowed)}" in args

    done = release("upgrade", "one", values={**values, "controller": {"replicas": 1}})
    assert done.returncode == 0, done.stderr
    assert _get(api_server, "-n", namespace, "secret", f"{name}-tls")["data"] == secret["data"]
    assert _get(api_server, "apiservice", "v1beta1.external.metrics.k8s.io")["spec"] == service["spec"]

    done = release("install", "two", values=values)
    assert done.returncode != 0
    assert f"is served by {namespace}/{name} already" in done.stderr


def _shown(certificate: str) -> str:
    done = subprocess.run(["openssl", "x509", "-noout", "-text"], input=certificate, capture_output=True, text=True)
    return done.stdout


def test_the_password_of_the_trial_database_is_kept(api_server: ApiServer, namespace: str, release: Helm) -> None:
    values = {"crds": {"install": False}, "trialPostgres": {"enabled": True}}
    assert release("install", "trial", values=values).returncode == 0
    before = _get(api_server, "-n", namespace, "secret", "trial-slotkeeper-trial-postgres")["data"]
    assert release("upgrade", "trial", values={**values, "controller": {"replicas": 1}}).returncode == 0
    assert _get(api_server, "-n", namespace, "secret", "trial-slotkeeper-trial-postgres")["data"] == before


def test_a_policy_leaves_only_tasks(api_server: ApiServer, new_namespace: Callable[[], str]) -> None:
    ruled, free = new_namespace(), new_namespace()
    api_server.kubectl("label", "namespace", ruled, "slotkeeper.dev/tasks-only=true")
    api_server.kubectl("apply", "-f", str(POLICY))
    try:
        command = manifest("commanding", ruled, command=["date"])
        job = manifest("jobbing", ruled, job={"template": {"spec": {}}})

        def refusal(obj: dict[str, Any]) -> str:
            done = api_server.kubectl(
                "-n", ruled, "apply", "--dry-run=server", "-f", "-", given=yaml.safe_dump(obj), check=False
            )
            return done.stderr if done.returncode else ""

        # A policy is in force a moment after it was applied.
        said = eventually(lambda: refusal(command), what="the policy")
        assert "spec.command is not allowed in this namespace; write spec.task" in said
        assert "spec.job is not allowed" in refusal(job)
        assert refusal(manifest("tasking", ruled)) == ""
        api_server.apply(manifest("commanding", free, command=["date"]))
    finally:
        api_server.kubectl("delete", "-f", str(POLICY))


def test_c136_the_hook_finds_the_secret_that_the_chart_makes(
    api_server: ApiServer, namespace: str, release: Helm
) -> None:
    """Nothing runs pods here: the test ends the Job in the kubelet's place once it has seen what its pod would read."""
    values = {"crds": {"install": False}, "database": {"host": "db.example", "password": "p@ss"}}
    with ThreadPoolExecutor(1) as pool:
        installing = pool.submit(release, "install", "made", "--wait=hookOnly", values=values)
        name = "made-slotkeeper-migrate"
        eventually(lambda: api_server.kubectl("-n", namespace, "get", "job", name, check=False).returncode == 0)
        (container,) = _get(api_server, "-n", namespace, "job", name)["spec"]["template"]["spec"]["containers"]
        (password,) = [variable for variable in container["env"] if variable["name"] == "PGPASSWORD"]
        read = password["valueFrom"]["secretKeyRef"]
        secret = _get(api_server, "-n", namespace, "secret", read["name"])
        assert base64.b64decode(secret["data"][read["key"]]).decode() == "p@ss"
        assert api_server.kubectl("-n", namespace, "get", "deployments").stdout == "", "the release waits for it"
        _complete(api_server, namespace, name)
        done = installing.result()
    assert done.returncode == 0, done.stderr
    assert "made-slotkeeper-database" in api_server.kubectl("-n", namespace, "get", "secrets", "-o", "name").stdout


def _complete(api_server: ApiServer, namespace: str, job: str) -> None:
    """As the Job's controller says it."""
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    conditions = [
        {"type": kind, "status": "True", "lastTransitionTime": now} for kind in ("SuccessCriteriaMet", "Complete")
    ]
    status = {"succeeded": 1, "startTime": now, "completionTime": now, "conditions": conditions}
    api_server.kubectl(
        "-n",
        namespace,
        "patch",
        "job",
        job,
        "--subresource=status",
        "--type=merge",
        "-p",
        json.dumps({"status": status}),
    )


def test_c136_a_secret_that_is_missing_is_named_at_once(api_server: ApiServer, namespace: str, release: Helm) -> None:
    """The hook would wait for it in silence until its deadline."""
    database = {
        "host": "db.example",
        "name": "slots",
        "user": "app",
        "existingSecret": "pg-creds",
        "passwordKey": "pgpass",
    }
    values = {"crds": {"install": False}, "database": database}
    done = release("install", "early", values=values)
    assert done.returncode != 0
    assert f"there is no Secret {namespace}/pg-creds" in done.stderr
    api_server.kubectl("-n", namespace, "create", "secret", "generic", "pg-creds", "--from-literal=password=p")
    done = release("install", "early", values=values)
    assert f"the Secret {namespace}/pg-creds has no key pgpass" in done.stderr
    assert "its keys are password" in done.stderr
    unchecked = {"migrations": {"checkSecret": False}}
    done = release("install", "early", "--dry-run=server", values={**values, **unchecked})
    assert done.returncode == 0, done.stderr
    # Nothing waits for it in a hook: the pods do.
    done = release(
        "install",
        "early",
        values={**values, "database": {**database, "existingSecret": "later"}, "migrations": {"mode": "job"}},
    )
    assert done.returncode == 0, done.stderr


def test_c140_a_release_of_one_namespace_installs_into_others(
    api_server: ApiServer, new_namespace: Callable[[], str], release: Helm, namespace: str
) -> None:
    ops, first, second = (new_namespace() for _ in range(3))
    values = {
        **THERE, "namespaceOverride": ops, "controller": {"namespaces": [first, second]},
        "workers": {"pools": [{"name": "a"}]},
    }  # fmt: skip
    done = release("install", "elsewhere", values=values)
    assert done.returncode == 0, done.stderr
    everything = "deployments,serviceaccounts,services,roles,rolebindings,poddisruptionbudgets"

    def names(place: str) -> set[str]:
        found = api_server.kubectl("-n", place, "get", everything, "-o", "name").stdout.split()
        return {name for name in found if "elsewhere" in name}

    assert names(namespace) == set()
    assert (
        {name.partition(".")[0] for name in names(first)}
        == {"role", "rolebinding"}
        == {name.partition(".")[0] for name in names(second)}
    )
    assert "deployment.apps/elsewhere-slotkeeper-controller" in names(ops)
    account = f"system:serviceaccount:{ops}:elsewhere-slotkeeper-controller"

    def may(verb: str, place: str) -> bool:
        asked = ["auth", "can-i", verb, "jobschedules.slotkeeper.dev", "-n", place, "--as", account]
        return api_server.kubectl(*asked, check=False).returncode == 0

    assert may("watch", first)
    assert may("list", second)
    assert not may("list", namespace)
    assert not may("list", ops)
