"""The chart's files agree with each other and with the program: CRDs, versions, values, schema, README, flags."""

from __future__ import annotations

import copy
import re
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import click
import jsonschema
import pytest
import yaml

from helm_chart import CHART, CI_FILES, ROOT, pods, render
from slotkeeper import __version__
from slotkeeper.cli.main import commands

TEMPLATES = CHART / "templates"
Json = dict[str, Any]


def _yaml(file: Path) -> Any:
    return yaml.safe_load(file.read_text(encoding="utf-8"))


VALUES: Json = _yaml(CHART / "values.yaml")
SCHEMA: Json = _yaml(CHART / "values.schema.json")


def test_the_crds_are_those_of_the_repository() -> None:
    of_chart = {file.name: file.read_bytes() for file in (CHART / "files" / "crds").iterdir()}
    of_repository = {file.name: file.read_bytes() for file in (ROOT / "crds").glob("*.yaml")}
    assert of_chart == of_repository, "run charts/slotkeeper/sync-files"


def test_the_keep_annotation_has_one_place_to_go() -> None:
    replaced, replacement = re.findall(
        r'replace "((?:[^"\\]|\\.)*)" "((?:[^"\\]|\\.)*)"', (TEMPLATES / "crd.yaml").read_text()
    )[0]
    old, new = (text.encode().decode("unicode_escape") for text in (replaced, replacement))
    for file in (CHART / "files" / "crds").iterdir():
        text = file.read_text(encoding="utf-8")
        assert text.count(old) == 1
        before, after = yaml.safe_load(text), yaml.safe_load(text.replace(old, new))
        assert after["metadata"].pop("annotations") == {"helm.sh/resource-policy": "keep"}
        assert after == before


def test_one_version() -> None:
    chart = _yaml(CHART / "Chart.yaml")
    assert (chart["version"], chart["appVersion"]) == (__version__, __version__)


def _of_schema(schema: Json) -> Json:
    return _of_schema(SCHEMA["$defs"][schema["$ref"].rpartition("/")[2]]) if "$ref" in schema else schema


def _paths_of_schema(schema: Json, path: str = "") -> Iterator[str]:
    for name, child in _of_schema(schema).get("properties", {}).items():
        yield f"{path}.{name}"
        yield from _paths_of_schema(child, f"{path}.{name}")


def _paths_of_values(values: object, schema: Json, path: str = "") -> Iterator[str]:
    known = _of_schema(schema).get("properties")
    if isinstance(values, Mapping) and known is not None:
        for name, child in values.items():
            yield f"{path}.{name}"
            yield from _paths_of_values(child, known.get(name, {}), f"{path}.{name}")


def test_values_and_schema_name_the_same() -> None:
    # An image of a pool is empty by default: what may be in it is the chart's own image.
    of_schema = {
        path for path in _paths_of_schema(SCHEMA) if not path.startswith((".global", ".workers.defaults.image."))
    }
    assert set(_paths_of_values(VALUES, SCHEMA)) == of_schema


def test_every_object_of_the_schema_is_closed_or_kubernetes_own() -> None:
    def objects(schema: Json, path: str) -> Iterator[tuple[str, Json]]:
        if schema.get("type") == "object":
            yield path, schema
        for name, child in schema.get("properties", {}).items():
            yield from objects(child, f"{path}.{name}")

    for path, schema in [
        *objects(SCHEMA, ""),
        *(pair for name, own in SCHEMA["$defs"].items() for pair in objects(own, name)),
    ]:
        assert ("properties" in schema) == (schema.get("additionalProperties") is False), path


@pytest.mark.parametrize("file", [None, *CI_FILES], ids=lambda file: file.stem if file else "defaults")
def test_values_satisfy_the_schema(file: Path | None) -> None:
    jsonschema.Draft202012Validator(SCHEMA).validate(_merged(VALUES, _yaml(file) if file else {}))


@pytest.mark.parametrize(
    "wrong",
    [
        {"controler": {}},
        {"workers": {"pools": [{"queues": ["a"]}]}},
        {"workers": {"pools": [{"name": "a", "allow": ["http"]}]}},
        {"workers": {"pools": [{"name": "a", "leaseSeconds": 0}]}},
        {"workers": {"defaults": {"queues": []}}},
        {"migrations": {"grants": ["someone=admin"]}},
        {"controller": {"namespaces": ["*"]}},
        {"migrations": {"mode": "never"}},
        {"database": {"sslMode": "yes"}},
        {"workers": {"pools": [{"name": "a", "autoscaling": {"kind": "hpa"}}]}},
        {"prometheusRule": {"alerts": {"SlotkeeperOverdue": {}}}},
        {"prometheusRule": {"alerts": {"SlotkeeperRunsDead": {"for": "soon"}}}},
        {"listen": {"port": 80}},
    ],
    ids=str,
)
def test_wrong_values_are_refused(wrong: Json) -> None:
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.Draft202012Validator(SCHEMA).validate(_merged(VALUES, wrong))


def _merged(values: Json, over: Json) -> Json:
    """As Helm merges a values file: maps by key, all else replaced."""
    merged = copy.deepcopy(values)
    for name, value in over.items():
        below = merged.get(name)
        merged[name] = _merged(below, value) if isinstance(below, dict) and isinstance(value, dict) else value
    return merged


#: Flags that come from the environment, or are for people or another place than a pod.
NOT_PASSED = {
    "--dsn", "--direct-dsn", "--adopt", "--kubernetes", "--no-kubernetes", "--kubeconfig", "--scaling-most-workers",
    "--isolation",
}  # fmt: skip


@pytest.mark.parametrize("command", ["controller", "worker", "migrate", "external-metrics"])
def test_pods_pass_flags_that_the_command_has(command: str) -> None:
    found = commands.get_command(click.Context(commands), command)
    assert found is not None
    flags = {flag for option in found.params for flag in option.opts}
    containers = [pod["containers"][0] for file in CI_FILES for _, pod in pods(render(file))]
    lists = [container["args"][1:] for container in containers if container.get("args", [""])[0] == command]
    assert lists
    passed = {argument.partition("=")[0] for arguments in lists for argument in arguments}
    assert passed <= flags
    assert flags - passed <= NOT_PASSED


def test_commands_take_what_pods_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLOTKEEPER_DSN", "host=h")
    taken = set()
    for _, pod in (pair for file in CI_FILES for pair in pods(render(file))):
        name, *arguments = pod["containers"][0].get("args", [""])
        # Files that only a pod has.
        if any("=/etc/slotkeeper/" in argument for argument in arguments):
            continue
        command = commands.get_command(click.Context(commands), name)
        if command is not None:
            command.make_context(name, list(arguments))
            taken.add(name)
    assert taken == {"controller", "worker", "migrate"}


def test_a_flag_in_a_pod_is_there_once() -> None:
    for file in CI_FILES:
        for name, pod in pods(render(file)):
            flags = [text.partition("=")[0] for text in pod["containers"][0].get("args", []) if text.startswith("--")]
            flags = [flag for flag in flags if flag not in ("--app", "--grant")]
            assert len(flags) == len(set(flags)), (file.name, name)


def test_the_readme_has_the_table_of_the_values() -> None:
    done = subprocess.run([str(CHART / "write-values-table"), "--check"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_defaults_are_those_of_the_command() -> None:
    worker = commands.get_command(click.Context(commands), "worker")
    assert worker is not None
    defaults = {option.opts[0]: option.default for option in worker.params}
    of_chart = VALUES["workers"]["defaults"]
    for name in ("concurrency", "leaseSeconds", "pollSeconds", "drainSeconds"):
        assert of_chart[name] == defaults["--" + re.sub("[A-Z]", lambda letter: "-" + letter[0].lower(), name)]
    assert [",".join(of_chart["queues"]), ",".join(of_chart["allow"])] == [defaults["--queues"], defaults["--allow"]]
