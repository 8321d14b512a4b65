"""Standard streams that cannot have everything, or that are not there: told in words, never a traceback."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from cli.objects import document, write

Run = Callable[..., Any]
JOB = {"spec": {"template": {"spec": {"containers": [{"name": "main", "image": "x", "args": ["–", "\U0001f600"]}]}}}}
CRONJOB = {
    "apiVersion": "batch/v1",
    "kind": "CronJob",
    "metadata": {"name": "a"},
    "spec": {"schedule": "0 2 * * *", "jobTemplate": JOB},
}


def _shell(command: str, **environment: str) -> subprocess.CompletedProcess[str]:
    words = command.replace("slotkeeper", f"{sys.executable} -m slotkeeper.cli")
    done = subprocess.run(
        ["sh", "-c", words], env=os.environ | environment, capture_output=True, text=True, encoding="latin-1",
        timeout=50,
    )  # fmt: skip
    assert "Traceback" not in done.stderr
    return done


def test_words_that_the_terminal_cannot_have_are_escapes(tmp_path: Path) -> None:
    spec = {"cron": ["30 2 * * *"], "timeZone": "Europe/Berlin"}
    file = write(tmp_path / "s.yaml", document("a", "billing", **spec))
    done = _shell(f"slotkeeper lint {file} --from 2027-03-01T00:00:00Z", PYTHONIOENCODING="latin-1")
    assert done.returncode == 0
    assert "skips 02:00\\u201303:00" in done.stdout
    done = _shell(f"slotkeeper lint {file} --from 2027-03-01T00:00:00Z -o json", PYTHONIOENCODING="latin-1")
    assert any("skips 02:00–03:00" in entry["message"] for entry in json.loads(done.stdout))


@pytest.mark.parametrize("output", ["yaml", "json"])
def test_objects_are_right_in_every_encoding(tmp_path: Path, output: str) -> None:
    file = write(tmp_path / "s.yaml", CRONJOB)
    done = _shell(f"slotkeeper convert {file} -o {output}", PYTHONIOENCODING="latin-1")
    assert done.returncode == 0
    found = yaml.safe_load(done.stdout) if output == "yaml" else json.loads(done.stdout)["items"][0]
    assert found["spec"]["job"]["template"] == JOB


@pytest.mark.parametrize("command", ["lint", "preview", "convert"])
def test_standard_input_that_is_closed(command: str) -> None:
    done = _shell(f"slotkeeper {command} - <&-")
    assert done.returncode == 4
    assert "<stdin>" in done.stdout + done.stderr
    assert "cannot be read: it is closed" in done.stdout + done.stderr


@pytest.mark.parametrize("command", ["lint", "preview", "convert"])
def test_a_name_that_is_half_a_character(slotkeeper: Run, tmp_path: Path, command: str) -> None:
    body = CRONJOB if command == "convert" else document("a", None, cron=["0 2 * * *"])
    file = tmp_path / "s.json"
    file.write_text(json.dumps(body | {"metadata": {"name": "\ud800"}}))
    done = slotkeeper(command, file)
    assert done.status == 4
    assert "\\ud800" in done.out + done.err


@pytest.mark.parametrize("command", ["lint", "preview", "convert"])
def test_a_folder_that_may_not_be_listed_does_not_keep_the_others(
    slotkeeper: Run, tmp_path: Path, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = CRONJOB if command == "convert" else document("good", "billing", cron=["* * * * *"])
    good = write(tmp_path / "good.yaml", body)
    slotkeeper(command, good)  # what is imported late is there now
    (tmp_path / "closed").mkdir(mode=0)
    for place in (tmp_path, good):
        place.chmod(0o755)
    monkeypatch.chdir(tmp_path)
    user = os.geteuid()
    if user == 0:  # root may list every folder
        os.seteuid(65534)
    try:
        done = slotkeeper(command, "closed", "good.yaml")
    finally:
        os.seteuid(user)
    assert done.status == 4
    assert "closed: cannot be read: Permission denied" in done.err or "Permission denied" in done.out
    assert done.out
