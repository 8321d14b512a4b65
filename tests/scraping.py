"""Reads what our servers serve over HTTP, and asks for single values. For tests of metrics."""

from __future__ import annotations

import gzip
import http.client
from collections.abc import Mapping
from dataclasses import dataclass, field

from prometheus_client.metrics_core import Metric
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

#: Far more than any answer takes (seconds).
PATIENCE = 30.0


@dataclass
class Answer:
    """An answer of a server."""

    status: int
    text: str
    content_type: str = ""
    encoding: str = ""


@dataclass
class Scrape:
    """The families of one answer, by name."""

    families: Mapping[str, Metric] = field(default_factory=dict)

    def value(self, name: str, **labels: str) -> float | None:
        """Of the one sample with this name and these labels; None when there is none."""
        found = self.values(name, **labels)
        assert len(found) <= 1, f"{name} {labels} is not one sample: {found}"
        return found[0] if found else None

    def values(self, name: str, **labels: str) -> list[float]:
        """Of every sample with this name and at least these labels."""
        return [
            sample.value
            for family in self.families.values()
            for sample in family.samples
            if sample.name == name and labels.items() <= sample.labels.items()
        ]

    def labels(self, name: str, label: str) -> set[str]:
        """The values of a label."""
        return {
            sample.labels[label]
            for family in self.families.values()
            for sample in family.samples
            if sample.name == name
        }


def get(port: int, path: str, **headers: str) -> Answer:
    """One request to a server of this machine."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
    try:
        connection.request("GET", path, headers={name.replace("_", "-"): value for name, value in headers.items()})
        response = connection.getresponse()
        body = response.read()
        encoding = response.getheader("Content-Encoding", "")
        text = (gzip.decompress(body) if encoding == "gzip" else body).decode()
        return Answer(response.status, text, response.getheader("Content-Type", ""), encoding)
    finally:
        connection.close()


def scrape(port: int, path: str = "/metrics", *, openmetrics: bool = False) -> Scrape:
    """The metrics of a server, through the parser of Prometheus' own client."""
    accept = "application/openmetrics-text; version=1.0.0" if openmetrics else "text/plain; version=0.0.4"
    answer = get(port, path, Accept=accept)
    assert answer.status == 200, answer.text
    families = list((parse_openmetrics if openmetrics else parse_text)(answer.text))
    names = [family.name for family in families]
    assert len(names) == len(set(names)), f"a family twice: {names}"
    return Scrape(dict(zip(names, families, strict=True)))
