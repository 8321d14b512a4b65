"""JobSchedules as files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml


def document(name: str, namespace: str | None, **spec: Any) -> dict[str, Any]:
    """An object with a task unless ``spec`` names another action."""
    if not {"task", "command", "http", "job"} & spec.keys():
        spec["task"] = "report"
    metadata = {"name": name} | ({} if namespace is None else {"namespace": namespace})
    return {"apiVersion": "slotkeeper.dev/v1beta1", "kind": "JobSchedule", "metadata": metadata, "spec": spec}


def write(file: Path, *objects: dict[str, Any]) -> Path:
    """The objects as the documents of a file."""
    file.parent.mkdir(exist_ok=True)
    file.write_text(yaml.safe_dump_all(objects, sort_keys=False))
    return file
