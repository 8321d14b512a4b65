"""JobSchedules as the API server stores them, for tests that need no API server."""

from __future__ import annotations

import copy
from typing import Any

Object = dict[str, Any]


def jobschedule(
    name: str = "report",
    *,
    namespace: str = "billing",
    uid: str = "uid-1",
    generation: int = 1,
    trigger: str | None = None,
    **spec: Any,
) -> Object:
    """An object with a minutely schedule and a task, unless ``spec`` says something else."""
    if not {"cron", "every", "at"} & spec.keys():
        spec["cron"] = ["* * * * *"]
    if not {"task", "command", "http", "job"} & spec.keys():
        spec["task"] = "report"
    annotations = {} if trigger is None else {"slotkeeper.dev/trigger": trigger}
    return {
        "apiVersion": "slotkeeper.dev/v1beta1",
        "kind": "JobSchedule",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "uid": uid,
            "generation": generation,
            "resourceVersion": str(generation),
            "annotations": annotations,
        },
        "spec": spec,
    }


def edited(obj: Object, *, trigger: str | None = None, **spec: Any) -> Object:
    """The next generation of ``obj`` with these fields of its spec changed; an annotation alone makes none."""
    new = copy.deepcopy(obj)
    new["spec"].update(spec)
    if spec:
        new["metadata"]["generation"] += 1
    if trigger is not None:
        new["metadata"]["annotations"]["slotkeeper.dev/trigger"] = trigger
    return new


def manifest(name: str, namespace: str, *, trigger: str | None = None, **spec: Any) -> Object:
    """What a person applies: nothing that the API server fills in."""
    obj = jobschedule(name, namespace=namespace, trigger=trigger, **spec)
    annotations = {"annotations": obj["metadata"]["annotations"]} if trigger is not None else {}
    obj["metadata"] = {"name": name, "namespace": namespace, **annotations}
    return obj
