"""What `slotkeeper convert` writes, before the judges themselves: kubectl's own reader, and the API server."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from api_server import ApiServer
from click.testing import CliRunner

from slotkeeper.cli.convert import convert

DATA = Path(__file__).parents[1] / "unit" / "convert" / "data"
# Kubernetes has not served batch/v1beta1 since 1.25, and no CronWorkflow ever.
FILES = sorted(file for file in DATA.glob("*.yaml") if file.name[:3] not in ("M07", "M12", "exp"))


def _converted(file: Path) -> str:
    result = CliRunner().invoke(convert, [str(file)])
    assert result.exit_code == 0, result.stderr
    return result.stdout


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_c148_the_template_is_what_kubectl_reads_in_the_cronjob(api_server: ApiServer, file: Path) -> None:
    said = api_server.kubectl("create", "--dry-run=client", "-o", "json", "-f", str(file)).stdout
    written = api_server.kubectl("create", "--dry-run=client", "-o", "json", "-f", "-", given=_converted(file)).stdout
    templates = {obj["metadata"]["name"]: obj["spec"]["job"]["template"] for obj in _objects(written)}
    for obj in _objects(said):
        wanted = json.loads(json.dumps(obj["spec"]["jobTemplate"]), object_hook=_without_null_timestamp)
        assert templates.pop(obj["metadata"]["name"]) == wanted
    assert not templates


def test_the_api_server_takes_all_of_it_and_keeps_the_template(api_server: ApiServer, namespace: str) -> None:
    written = "".join(_converted(file) for file in FILES)
    # One of the manifests names its own namespace.
    written = written.replace("namespace: lab", f"namespace: {namespace}")
    api_server.kubectl("-n", namespace, "apply", "--server-side", "--validate=strict", "-f", "-", given=written)
    stored = api_server.list(namespace)
    objects = [obj for obj in yaml.safe_load_all(written) if obj]
    assert len(stored) == len(objects) == 14
    for obj in objects:
        spec = stored[obj["metadata"]["name"]]["spec"]
        assert {name: spec[name] for name in obj["spec"]} == obj["spec"] | {
            "catchUp": spec["catchUp"],
            "retry": spec["retry"],
        }
        assert spec["retry"].items() >= obj["spec"]["retry"].items()
        assert spec["catchUp"]["policy"] == "RunOnce"


def _objects(text: str) -> list[dict[str, Any]]:
    """kubectl prints one object after the other."""
    decoder, objects, position = json.JSONDecoder(), [], 0
    while position < len(text.rstrip()):
        obj, end = decoder.raw_decode(text, position)
        objects += obj["items"] if obj["kind"] == "List" else [obj]
        position = end + len(text[end:]) - len(text[end:].lstrip())
    return objects


def _without_null_timestamp(value: dict[str, Any]) -> dict[str, Any]:
    return {name: child for name, child in value.items() if (name, child) != ("creationTimestamp", None)}
