"""The API external.metrics.k8s.io behind a real API server: what `kubectl` and an HPA see through its aggregation.

No pods run here, so that the Service names a host (ExternalName) in place of pods, and a Deployment is a number only.
"""

from __future__ import annotations

import http.client
import json
import os
import ssl
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from api_server import ApiServer, eventually

import scenario
from certificates import new_authority
from processes import OwnProcess, own_processes
from scenario import add_worker, enqueue

GROUP = "/apis/external.metrics.k8s.io/v1beta1"
APISERVICE = "v1beta1.external.metrics.k8s.io"


@pytest.fixture(scope="module")
def provider(api_server: ApiServer, shared_dsn: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[OwnProcess]:
    """`slotkeeper external-metrics`, registered with the API server and available there."""
    if api_server.state is None:
        pytest.skip("another machine's API server does not reach a process of this test")
    namespace, folder = f"external-metrics-{os.getpid()}", tmp_path_factory.mktemp("external-metrics")
    api_server.kubectl("create", "namespace", namespace)
    host = f"external-metrics.{namespace}.svc"
    authority = new_authority(folder, "serving-ca")
    certificate, key = authority.issue("external-metrics", dns=f"DNS:{host},DNS:localhost")
    with own_processes(folder) as processes:
        process = processes.start(
            "external-metrics", "--dsn", shared_dsn, "--tls-cert-file", str(certificate),
            "--tls-private-key-file", str(key),
            "--requestheader-client-ca-file", str(api_server.state / "pki" / "ca.crt"),
            "--requestheader-allowed-names", "front-proxy", "--secure-port", "0", "--log-format", "json",
        )  # fmt: skip
        port = eventually(lambda: process.log("serving"), what="serving")[0]["port"]
        try:
            api_server.apply(*registration(namespace, port, authority.certificate))
            api_server.kubectl("wait", "--for=condition=Available", "--timeout=40s", "apiservice", APISERVICE)
            yield process
        finally:
            # Before the process goes: an API that is registered and away stops the deletion of every namespace.
            api_server.kubectl("delete", "apiservice", APISERVICE, "--ignore-not-found")


def registration(namespace: str, port: int, ca: Path) -> Iterator[dict[str, Any]]:
    yield {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "external-metrics", "namespace": namespace},
        "spec": {"type": "ExternalName", "externalName": "localhost"},
    }
    encoded = subprocess.run(["base64", "-w0", str(ca)], capture_output=True, text=True, check=True).stdout
    yield {
        "apiVersion": "apiregistration.k8s.io/v1",
        "kind": "APIService",
        "metadata": {"name": APISERVICE},
        "spec": {
            "group": "external.metrics.k8s.io", "version": "v1beta1", "groupPriorityMinimum": 100,
            "versionPriority": 100, "caBundle": encoded,
            "service": {"name": "external-metrics", "namespace": namespace, "port": port},
        },
    }  # fmt: skip


def metric(pool: str) -> str:
    return f"{GROUP}/namespaces/default/slotkeeper_workers_wanted?labelSelector={quote(f'pool={pool}')}"


def test_the_number_of_a_pool_comes_through_the_api_server(
    api_server: ApiServer, provider: OwnProcess, shared_dsn: str
) -> None:
    with scenario.connect(shared_dsn) as connection:
        add_worker(connection)
        for _ in range(45):
            enqueue(connection)
    # Not at once, where numbers from before the pool was known are still kept.
    found = eventually(lambda: api_server.kubectl("get", "--raw", metric("default"), check=False).stdout, what="pool")
    values = json.loads(found)
    assert [(item["metricName"], item["value"]) for item in values["items"]] == [("slotkeeper_workers_wanted", "3")]
    refused = api_server.kubectl("get", "--raw", metric("reports"), check=False)
    assert refused.returncode != 0
    assert "there is no pool 'reports'" in refused.stderr
    # Discovery, of one group and of all of them.
    assert json.loads(api_server.kubectl("get", "--raw", GROUP).stdout)["resources"][0]["namespaced"]
    listed = api_server.kubectl("api-resources", "--api-group=external.metrics.k8s.io", "--no-headers", "-o", "name")
    assert listed.stdout.split() == ["slotkeeper_workers_wanted.external.metrics.k8s.io"]
    # Who may read it is the API server's matter: somebody without a role gets nothing.
    refused = api_server.kubectl("get", "--raw", metric("default"), "--as=somebody", check=False)
    assert refused.returncode != 0
    assert "forbidden" in refused.stderr


@pytest.fixture
def autoscaler(api_server: ApiServer, tmp_path: Path) -> Iterator[None]:
    """Kubernetes' own HPA controller, which looks every second."""
    assert api_server.state is not None
    program = api_server.state / "bin" / "kube-controller-manager"
    if not program.exists():
        pytest.skip("KUBEBUILDER_ASSETS has no controller manager")
    process = OwnProcess(
        [
            str(program), "--kubeconfig", str(api_server.kubeconfig), "--leader-elect=false",
            "--controllers=horizontal-pod-autoscaler-controller", "--secure-port=0",
            "--use-service-account-credentials=false",
            "--horizontal-pod-autoscaler-sync-period=1s", "--horizontal-pod-autoscaler-downscale-stabilization=1s",
        ],
        tmp_path / "autoscaler.log", cwd=tmp_path, environment={},
    )  # fmt: skip
    yield
    process.end()


def test_a_plain_hpa_scales_by_it(
    api_server: ApiServer, provider: OwnProcess, autoscaler: None, shared_dsn: str, namespace: str
) -> None:
    with scenario.connect(shared_dsn) as connection:
        worker = add_worker(connection, namespace=namespace, pool="busy", queues=["busy"], concurrency=20)
        for _ in range(125):
            enqueue(connection, queue="busy")
        api_server.apply(*autoscaled(namespace))

        def replicas() -> int:
            found = api_server.kubectl("-n", namespace, "get", "deployment", "worker", "-o", "json").stdout
            return int(json.loads(found)["spec"]["replicas"])

        eventually(lambda: replicas() == 7, what="7 workers for 125 runs of 20 each")
        for run in worker.claim(125):
            worker.finish(run)
        eventually(lambda: replicas() == 1, what="nothing to do, the least")


def autoscaled(namespace: str) -> Iterator[dict[str, Any]]:
    labels = {"app": "worker"}
    yield {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "worker", "namespace": namespace},
        "spec": {
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {"containers": [{"name": "worker", "image": "worker"}]},
            },
        },
    }
    yield {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": "worker", "namespace": namespace},
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "worker"},
            "minReplicas": 1,
            "maxReplicas": 50,
            "metrics": [
                {
                    "type": "External",
                    "external": {
                        "metric": {
                            "name": "slotkeeper_workers_wanted",
                            "selector": {"matchLabels": {"pool": "busy"}},
                        },
                        "target": {"type": "AverageValue", "averageValue": "1"},
                    },
                }
            ],
            "behavior": {
                "scaleUp": {"policies": [{"type": "Pods", "value": 100, "periodSeconds": 15}]},
                "scaleDown": {"stabilizationWindowSeconds": 0},
            },
        },
    }


def test_nobody_but_the_aggregation_layer_is_let_in(api_server: ApiServer, provider: OwnProcess) -> None:
    assert api_server.state is not None
    pki = api_server.state / "pki"
    port = provider.log("serving")[0]["port"]

    def status(name: str) -> int:
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        context.load_cert_chain(pki / f"{name}.crt", pki / f"{name}.key")
        connection = http.client.HTTPSConnection("localhost", port, context=context, timeout=20)
        connection.request("GET", GROUP)
        found = connection.getresponse().status
        connection.close()
        return found

    # In this cluster one CA signs both, so that only the name tells an administrator from the aggregation layer.
    assert (status("proxy-client"), status("admin")) == (200, 403)
