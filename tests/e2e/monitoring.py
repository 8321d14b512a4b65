"""A real Prometheus on the host that scrapes the release's pods and evaluates the chart's rules.

What to scrape and which rules stand in the chart's own objects, PodMonitors and a PrometheusRule. The
prometheus-operator, which makes a configuration of them in a cluster, is not here: `scrapes` does what it does with the
fields that the chart uses. The program is Debian's, unpacked beside promtool (tests/alerts/promtool), or on PATH. It
knows no Kubernetes: the pods are told to it in a file, with the labels that its own discovery would find.
"""

from __future__ import annotations

import json
import re
import shutil
import signal
import socket
import subprocess
from collections.abc import Mapping, Sequence
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import yaml
from whole_cluster import HOST, ROOT, WholeCluster, eventually

from slotkeeper.child_process import dies_with_parent

Object = Mapping[str, Any]


def program() -> str:
    """Prometheus on PATH, or the one beside promtool."""
    found = shutil.which("prometheus")
    if found is None:
        done = subprocess.run([str(ROOT / "tests" / "alerts" / "promtool")], stdout=subprocess.PIPE, text=True)
        assert done.returncode == 0, "promtool is missing"
        found = str(Path(done.stdout.strip()).with_name("prometheus"))
    assert Path(found).exists(), f"no {found}: install Debian's package prometheus, or put it on PATH"
    return found


class Prometheus:
    """One server, whose data and log are in ``folder``; it listens where pods reach it too.

    ``objects`` are the chart's, as Helm renders them. The release's pods are those of now, or of the last
    ``find_pods``. Rules are evaluated every two seconds.
    """

    def __init__(self, folder: Path, cluster: WholeCluster, objects: Sequence[Object]) -> None:
        with socket.socket() as probe:
            probe.bind((HOST, 0))
            self.url = f"http://{HOST}:{probe.getsockname()[1]}"
        monitors = [scrape for item in objects if item["kind"] == "PodMonitor" for scrape in scrapes(item)]
        groups = [group for item in objects if item["kind"] == "PrometheusRule" for group in item["spec"]["groups"]]
        assert monitors, "the chart rendered no PodMonitor"
        (folder / "rules.yaml").write_text(yaml.safe_dump({"groups": groups}))
        self._cluster, self._pods = cluster, folder / "pods.json"
        self.find_pods()
        configuration = {
            "global": {"evaluation_interval": "2s"},
            "rule_files": ["rules.yaml"],
            "scrape_configs": monitors,
        }
        (folder / "prometheus.yaml").write_text(yaml.safe_dump(configuration))
        with (folder / "log").open("wb") as log:
            self._process = subprocess.Popen(
                [program(), f"--config.file={folder / 'prometheus.yaml'}", f"--storage.tsdb.path={folder / 'data'}",
                 f"--web.listen-address={self.url.removeprefix('http://')}", "--log.level=warn"],
                stdout=log, stderr=log, preexec_fn=dies_with_parent(signal.SIGKILL),
            )  # fmt: skip
        self._log = folder / "log"

    def find_pods(self) -> None:
        """Tells the release's pods anew."""
        pods = self._cluster.get("slotkeeper", "pods")["items"]
        new = self._pods.with_suffix(".new")
        new.write_text(json.dumps([found for pod in pods if "podIP" in pod["status"] for found in discovered(pod)]))
        new.replace(self._pods)

    def stop(self) -> None:
        self._process.terminate()
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def ask(self, path: str, **parameters: str) -> Any:
        """The ``data`` of an answer of its HTTP API; None while it does not answer."""
        assert self._process.poll() is None, self._log.read_text()[-4000:]
        connection = HTTPConnection(self.url.removeprefix("http://"), timeout=10)
        try:
            connection.request("GET", f"/api/v1/{path}?{urlencode(parameters)}")
            answer = connection.getresponse()
            return json.load(answer)["data"] if answer.status == 200 else None
        except OSError:
            return None
        finally:
            connection.close()

    def value(self, query: str) -> float | None:
        """Of a query for one series; None while there is none."""
        data = self.ask("query", query=query)
        found = data["result"] if data else []
        assert len(found) <= 1, found
        return float(found[0]["value"][1]) if found else None

    def alerts(self, name: str) -> dict[str, Any]:
        """The alerts of this name, pending or firing, by ``namespace/schedule``."""
        data = self.ask("alerts")
        assert data is not None, "Prometheus does not answer"
        found = [alert for alert in data["alerts"] if alert["labels"]["alertname"] == name]
        return {f"{alert['labels']['namespace']}/{alert['labels']['schedule']}": alert for alert in found}

    def scrapes_everything(self, pods: int) -> None:
        """Waits until ``pods`` pods are scraped, all without an error."""

        def healthy() -> bool:
            found = (self.ask("targets", state="active") or {"activeTargets": []})["activeTargets"]
            addresses = {target["discoveredLabels"]["__address__"].rpartition(":")[0] for target in found}
            return len(addresses) == pods and {target["health"] for target in found} == {"up"}

        eventually(healthy, f"{pods} pods scraped")


def discovered(pod: Object) -> list[Object]:
    """What discovery finds of a pod: a target for each port of each container."""
    labels = {f"__meta_kubernetes_pod_label_{_meta(name)}": text for name, text in pod["metadata"]["labels"].items()}
    return [
        {
            "targets": [f"{pod['status']['podIP']}:{port['containerPort']}"],
            "labels": {
                **labels,
                "__meta_kubernetes_namespace": pod["metadata"]["namespace"],
                "__meta_kubernetes_pod_name": pod["metadata"]["name"],
                "__meta_kubernetes_pod_phase": pod["status"]["phase"],
                "__meta_kubernetes_pod_container_port_name": port["name"],
            },
        }
        for container in pod["spec"]["containers"]
        for port in container.get("ports", [])
    ]


def scrapes(monitor: Object) -> list[Object]:
    """The scrape configurations of a PodMonitor, one of each endpoint."""
    namespace, name = monitor["metadata"]["namespace"], monitor["metadata"]["name"]
    chosen = [
        _relabel(f"__meta_kubernetes_pod_label_{_meta(label)}", action="keep", regex=re.escape(value))
        for label, value in monitor["spec"]["selector"]["matchLabels"].items()
    ]
    return [
        {
            "job_name": f"podMonitor/{namespace}/{name}/{number}",
            "honor_labels": endpoint["honorLabels"],
            "scrape_interval": endpoint["interval"],
            "metrics_path": endpoint["path"],
            "file_sd_configs": [{"files": ["pods.json"]}],
            "relabel_configs": [
                _relabel("__meta_kubernetes_namespace", action="keep", regex=re.escape(namespace)),
                *chosen,
                _relabel("__meta_kubernetes_pod_phase", action="drop", regex="Failed|Succeeded"),
                _relabel("__meta_kubernetes_pod_container_port_name", action="keep", regex=endpoint["port"]),
                _relabel("__meta_kubernetes_namespace", target_label="namespace"),
                _relabel("__meta_kubernetes_pod_name", target_label="pod"),
                {"target_label": "job", "replacement": f"{namespace}/{name}"},
                *(
                    {"source_labels": given["sourceLabels"], "target_label": given["targetLabel"]}
                    for given in endpoint["relabelings"]
                ),
            ],
        }
        for number, endpoint in enumerate(monitor["spec"]["podMetricsEndpoints"])
    ]


def _meta(label: str) -> str:
    """A label's name as discovery writes it."""
    return re.sub("[^a-zA-Z0-9_]", "_", label)


def _relabel(source: str, **more: str) -> Object:
    return {"source_labels": [source], **more}
