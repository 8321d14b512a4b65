"""The chart's alerts as text: about metrics that exist, switchable, with runbooks. When they fire: tests/alerts."""

from __future__ import annotations

import re
from typing import Any

import pytest
import yaml

from exported_metrics import exported, named
from helm_chart import CHART, DATABASE, ROOT, render

RUNBOOKS = ROOT / "docs" / "runbooks"
VALUES = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))
RECORDED = re.compile(r"slotkeeper:[a-z_:]+")


def _rules(**values: Any) -> list[dict[str, Any]]:
    objects = render({**DATABASE, "prometheusRule": {"enabled": True}, **values})
    (rule,) = [obj for obj in objects if obj["kind"] == "PrometheusRule"]
    return [rule for group in rule["spec"]["groups"] for rule in group["rules"]]


def _alerts(**values: Any) -> dict[str, dict[str, Any]]:
    return {rule["alert"]: rule for rule in _rules(**values) if "alert" in rule}


def test_expressions_read_series_that_exist() -> None:
    known = exported()
    recorded: set[str] = set()
    for rule in _rules():
        metrics = named(rule["expr"])
        assert metrics <= known.keys(), rule
        assert set(RECORDED.findall(rule["expr"])) <= recorded, rule
        assert metrics or RECORDED.search(rule["expr"]), rule
        recorded.add(rule.get("record", ""))


def test_expressions_are_about_this_release_alone() -> None:
    for rule in _rules():
        for selector in re.findall(r"slotkeeper[_:][a-z_:]+(\{[^}]*\})?(?=[^\w(:]|$)", rule["expr"]):
            assert re.match(
                r'\{job=(~"slotkeeper/slotkeeper-controller\|slotkeeper/slotkeeper-worker"|"slotkeeper/slotkeeper-controller")',
                selector,
            ), rule
    for rule in _rules(metrics={"serviceMonitor": {"enabled": True}}):
        assert "slotkeeper/slotkeeper" not in rule["expr"]
        assert '"slotkeeper-controller' in rule["expr"]
    for rule in _rules(prometheusRule={"enabled": True, "controllerJob": "a", "workerJob": "b"}):
        assert re.search(r'job="a"|job=~"a\|b"', rule["expr"]), rule


@pytest.mark.parametrize("name", VALUES["prometheusRule"]["alerts"])
def test_an_alert_has_a_runbook_with_what_is_needed_at_night(name: str) -> None:
    page = (RUNBOOKS / f"{name}.md").read_text(encoding="utf-8")
    assert page.startswith(f"# {name}\n")
    assert re.findall(r"^## (.*)$", page, re.MULTILINE)[:4] == ["Meaning", "Impact", "Look", "Do"]
    # Something to type.
    assert "```" in page


def test_the_values_name_every_alert() -> None:
    assert _alerts().keys() == VALUES["prometheusRule"]["alerts"].keys()


def test_every_runbook_has_its_alert_and_the_list_names_it() -> None:
    alerts = _alerts()
    assert {page.stem for page in RUNBOOKS.glob("*.md")} == alerts.keys()
    listed = re.findall(
        r"^\| \[`(\w+)`\]\(runbooks/\1\.md\) \|",
        (ROOT / "docs" / "alerts.md").read_text(encoding="utf-8"),
        re.MULTILINE,
    )
    assert sorted(listed) == sorted(alerts)


def test_an_alert_says_where_its_runbook_is() -> None:
    for name, alert in _alerts().items():
        assert alert["annotations"]["runbook"] == f"docs/runbooks/{name}.md"
    published = _alerts(prometheusRule={"enabled": True, "runbookBase": "https://example.org/r/"})
    for name, alert in published.items():
        assert alert["annotations"]["runbook_url"] == f"https://example.org/r/{name}.md"


def test_each_alert_can_be_changed_and_switched_off() -> None:
    names = _alerts().keys()
    changed = _alerts(prometheusRule={
        "enabled": True, "alertLabels": {"team": "x"},
        "alerts": {name: {"for": "17m", "severity": f"of {name}"} for name in names},
    })  # fmt: skip
    for name, alert in changed.items():
        assert alert["for"] == "17m"
        assert alert["labels"] == {"severity": f"of {name}", "team": "x"}
    fewer = {"SlotkeeperScheduleOverdue": {"enabled": False}, "SlotkeeperQueueLagging": {"threshold": 7}}
    left = _alerts(prometheusRule={"enabled": True, "alerts": fewer})
    assert names - left.keys() == {"SlotkeeperScheduleOverdue"}
    assert left["SlotkeeperQueueLagging"]["expr"].endswith("> 7")
    assert not _alerts(prometheusRule={"enabled": True, "alerts": {name: {"enabled": False} for name in names}})


def test_links_of_runbooks_lead_somewhere() -> None:
    for page in RUNBOOKS.glob("*.md"):
        for target in re.findall(r"\]\(([^)#]+)", page.read_text(encoding="utf-8")):
            assert (page.parent / target).exists(), (page.name, target)


def test_a_release_of_workers_has_no_alert_about_a_controller() -> None:
    objects = render(CHART / "ci" / "worker-only-values.yaml")
    (rule,) = [obj for obj in objects if obj["kind"] == "PrometheusRule"]
    alerts = {rule["alert"] for group in rule["spec"]["groups"] for rule in group["rules"]}
    assert alerts == {
        "SlotkeeperRunsDead", "SlotkeeperQueueLagging", "SlotkeeperLeasesExpired", "SlotkeeperDatabaseUnreachable",
    }  # fmt: skip
