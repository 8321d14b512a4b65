"""The files of `slotkeeper dev`: finds them, checks them as the API server would, and applies what changed.

Goes through the same code as the operator; knows no process and no signal.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from slotkeeper.errors import DatabaseBusy
from slotkeeper.operator.applied import Applied, Outcome
from slotkeeper.operator.apply import Applier
from slotkeeper.spec import Manifest, UnreadableManifest, apply_defaults, check, manifest_files, read_manifests

#: Objects from files have one UID: a file that is edited is the same object.
_UID = "file"


@dataclass(slots=True)
class Loaded:
    """What one look at the files found: lines for a person, and whether anything is wrong."""

    lines: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)


class DevFiles:
    """``paths`` are files or folders. An object whose file is gone retires its schedule; so do ``known`` ones without
    a file.
    """

    def __init__(self, paths: Sequence[Path], applier: Applier, known: Iterable[tuple[str, str]] = ()) -> None:
        self._paths = paths
        self._applier = applier
        self._applied: dict[tuple[str, str], dict[str, Any]] = {key: {} for key in known}
        self._stamps: dict[Path, int] = {}
        self._again = False
        self._waiting: set[tuple[str, str]] = set()

    def stamps(self, suffixes: Sequence[str] = (".yaml", ".yml", ".json")) -> dict[Path, int]:
        """The time of the last change of every file that counts."""
        found: dict[Path, int] = {}
        for path in self._paths:
            with contextlib.suppress(OSError):  # editors replace and remove files while we look
                for file in path.iterdir() if path.is_dir() else [path]:
                    if file.suffix in suffixes and file.is_file():
                        found[file] = file.stat().st_mtime_ns
        return found

    def changed(self) -> bool:
        """Whether a file was added, edited or removed since the last ``load``, or something is to be tried again."""
        return self._again or self.stamps() != self._stamps

    def load(self) -> Loaded:
        """Reads every file, applies what changed and retires what is gone. What is wrong changes nothing else."""
        self._stamps = self.stamps()
        if not self._again:
            self._waiting.clear()
        self._again = False
        loaded = Loaded()
        present: dict[tuple[str, str], str] = {}
        for manifest in self._read(loaded):
            if manifest.ignored:
                loaded.lines.append(f"{manifest.where()}: ignored: a {manifest.kind} is not slotkeeper's")
                continue
            if manifest.key in present:
                loaded.errors.append(f"{manifest.where()}: {'/'.join(manifest.key)} is also in {present[manifest.key]}")
                continue
            present[manifest.key] = manifest.where()
            findings = check(manifest.object)
            if findings:
                loaded.errors += [f"{manifest.where(finding.field)}: {finding}" for finding in findings]
            else:
                self._apply(manifest, loaded)
        for key in [key for key in self._applied if key not in present and not loaded.errors]:
            self._retire(key, loaded)
        return loaded

    def _retire(self, key: tuple[str, str], loaded: Loaded) -> None:
        try:
            self._applier.retire(*key)
        except DatabaseBusy as error:  # a worker holds one of its runs at this moment
            self._try_again(key, str(error), loaded)
            return
        del self._applied[key]
        loaded.lines.append(f"{'/'.join(key)}: retired, its file is gone")

    def _try_again(self, key: tuple[str, str], problem: str, loaded: Loaded) -> None:
        """At the next look; said once."""
        self._again = True
        if key not in self._waiting:
            self._waiting.add(key)
            loaded.lines.append(f"{'/'.join(key)}: {problem}; trying again")

    def _read(self, loaded: Loaded) -> list[Manifest]:
        manifests: list[Manifest] = []
        for path in self._paths:
            try:
                for file in manifest_files(path):
                    manifests += read_manifests(file)
            except UnreadableManifest as error:
                loaded.errors.append(str(error))
        return manifests

    def _apply(self, manifest: Manifest, loaded: Loaded) -> None:
        before = self._applied.get(manifest.key)
        obj: dict[str, Any] = dict(apply_defaults(manifest.object))
        if before is not None and _content(before) == _content(obj):
            return
        # A time is a generation that rises at every edit, over restarts too.
        obj["metadata"] = {**obj["metadata"], "uid": _UID, "generation": time.time_ns() // 1_000_000}
        (applied,) = self._applier.apply([obj])
        if applied.refusal is not None:
            loaded.errors.append(f"{manifest.where(applied.refusal.field)}: {applied.refusal.message}")
        elif applied.outcome is Outcome.BUSY:
            self._try_again(manifest.key, applied.problem or "it is busy", loaded)
        else:
            self._applied[manifest.key] = obj
            loaded.lines.append(_line(manifest, applied))


def _content(obj: Mapping[str, Any]) -> object:
    metadata = obj.get("metadata", {})
    return obj.get("spec"), metadata.get("annotations"), metadata.get("labels")


def _line(manifest: Manifest, applied: Applied) -> str:
    next_slot = applied.next_slot
    upcoming = (
        "suspended"
        if applied.suspended
        else f"next slot {next_slot:%Y-%m-%dT%H:%M:%SZ}"
        if next_slot
        else "never fires"
    )
    return f"{'/'.join(manifest.key)}: {applied.resolved_schedule}, {upcoming}"
