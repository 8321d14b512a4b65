"""The chart's alerts, by promtool: each fires when it should, and stays silent when it should.

`make test-alerts`. A file NAME.yaml beside this one is in the form of `promtool test rules`, about the alert NAME of
the default values, for the release slotkeeper in the namespace slotkeeper.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from helm_chart import CHART, CI_FILES, DATABASE, ROOT, find, render

HERE = Path(__file__).parent
PAGE = ROOT / "docs" / "alerts.md"
CASES = sorted(HERE.glob("Slotkeeper*.yaml"))


@pytest.fixture(scope="session")
def promtool() -> str:
    """SLOTKEEPER_TEST_PROMTOOL, or one on PATH, or Debian's."""
    given = os.environ.get("SLOTKEEPER_TEST_PROMTOOL")
    if given:
        return given
    done = subprocess.run([str(HERE / "promtool")], capture_output=True, text=True, timeout=50)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def _rules(values: Any) -> Any:
    objects = render(values)
    (rule,) = [obj for obj in objects if obj["kind"] == "PrometheusRule"]
    return find(objects, "PrometheusRule", rule["metadata"]["name"])["spec"]


def _of_defaults() -> Any:
    return _rules({**DATABASE, "prometheusRule": {"enabled": True}})


@pytest.mark.parametrize("file", CASES, ids=lambda file: file.stem)
def test_the_alert_fires_when_it_should(promtool: str, file: Path, tmp_path: Path) -> None:
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump(_of_defaults()))
    shutil.copy(file, tmp_path)
    done = subprocess.run(
        [promtool, "test", "rules", file.name], cwd=tmp_path, capture_output=True, text=True, timeout=50
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_alert_has_a_file_in_which_it_fires_and_is_silent() -> None:
    alerts = {rule["alert"] for group in _of_defaults()["groups"] for rule in group["rules"] if "alert" in rule}
    assert {file.stem for file in CASES} == alerts
    for file in CASES:
        checks = [
            check
            for test in yaml.safe_load(file.read_text(encoding="utf-8"))["tests"]
            for check in test["alert_rule_test"]
            if check["alertname"] == file.stem
        ]
        assert {bool(check.get("exp_alerts")) for check in checks} == {True, False}, file.name


def test_c126_a_schedule_that_should_be_there_is_missed_by_the_rule_of_the_page(promtool: str, tmp_path: Path) -> None:
    (example,) = re.findall(r"^```yaml\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    given = yaml.safe_load(example)["prometheusRule"]
    (tmp_path / "rules.yaml").write_text(
        yaml.safe_dump(_rules({**DATABASE, "prometheusRule": {"enabled": True, **given}}))
    )
    shutil.copy(HERE / "missing.yaml", tmp_path)
    done = subprocess.run(
        [promtool, "test", "rules", "missing.yaml"], cwd=tmp_path, capture_output=True, text=True, timeout=50
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("file", CI_FILES, ids=lambda file: file.stem)
def test_prometheus_reads_the_rules(promtool: str, file: Path, tmp_path: Path) -> None:
    if "prometheusRule" not in file.read_text(encoding="utf-8"):
        return
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump(_rules(file)))
    done = subprocess.run(
        [promtool, "check", "rules", "--lint-fatal", str(tmp_path / "rules.yaml")],
        capture_output=True, text=True, timeout=50,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


def test_expressions_of_the_dashboards_are_promql(promtool: str, tmp_path: Path) -> None:
    texts = [json.loads(file.read_text(encoding="utf-8")) for file in (CHART / "files" / "dashboards").iterdir()]
    expressions = [target["expr"] for text in texts for panel in text["panels"] for target in panel.get("targets", [])]
    assert expressions
    rules = [
        {"record": f"a:{number}", "expr": expression.replace("$__rate_interval", "5m")}
        for number, expression in enumerate(expressions)
    ]
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump({"groups": [{"name": "dashboards", "rules": rules}]}))
    done = subprocess.run(
        [promtool, "check", "rules", str(tmp_path / "rules.yaml")], capture_output=True, text=True, timeout=50
    )
    assert done.returncode == 0, done.stdout + done.stderr
