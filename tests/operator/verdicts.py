"""What tools conclude from an object: kstatus (Flux and others) and the health check for Argo CD of docs/gitops.md."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml
from lupa.lua51 import LuaRuntime

_PAGE = Path(__file__).parents[2] / "docs" / "gitops.md"
_KEY = "resource.customizations.health.slotkeeper.dev_JobSchedule"


def kstatus(obj: dict[str, Any]) -> str:
    """The rules of sigs.k8s.io/cli-utils/pkg/kstatus for a kind that it has no rules of its own for, in their order.

    Deletion; a generation that was not observed; Reconciling and Stalled, whichever is first among the conditions;
    then Ready, of which False is no failure, only unfinished; otherwise all is well.
    """
    metadata, status = obj["metadata"], obj.get("status", {})
    if metadata.get("deletionTimestamp"):
        return "Terminating"
    if "observedGeneration" in status and status["observedGeneration"] != metadata["generation"]:
        return "InProgress"
    conditions = status.get("conditions", [])
    verdicts = {("Reconciling", "True"): "InProgress", ("Stalled", "True"): "Failed"}
    for entry in conditions:
        if (entry["type"], entry["status"]) in verdicts:
            return verdicts[entry["type"], entry["status"]]
    for entry in conditions:
        if entry["type"] == "Ready":
            return "Current" if entry["status"] == "True" else "InProgress"
    return "Current"


def argo_cd(obj: dict[str, Any]) -> tuple[str, str]:
    """(status, message) by the Lua text of the page, run as Argo CD does: Lua 5.1, the object as ``obj``."""
    [block] = re.findall(r"```yaml\n(.*?)```", _PAGE.read_text(), re.DOTALL)
    lua = LuaRuntime(unpack_returned_tuples=True, register_eval=False)
    lua.globals().obj = _table(lua, obj)
    health = lua.execute(yaml.safe_load(block)["data"][_KEY])
    return health.status, health.message


def _table(lua: LuaRuntime, value: Any) -> Any:
    if isinstance(value, dict):
        return lua.table_from({key: _table(lua, entry) for key, entry in value.items()})
    if isinstance(value, list):
        return lua.table_from([_table(lua, entry) for entry in value])
    return value
