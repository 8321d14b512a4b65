"""What a hold shows on a real object."""

from __future__ import annotations

import pytest
from api_server import ApiServer, condition, eventually
from click.testing import CliRunner
from jobschedule_objects import manifest

from slotkeeper.cli.main import commands
from slotkeeper.operator import Operator
from slotkeeper.ticker import Ticker


def command(dsn: str, *words: str) -> None:
    result = CliRunner().invoke(commands, [words[0], "--dsn", dsn, *words[1:]])
    assert result.exit_code == 0, (result.output, result.exception)


@pytest.mark.parametrize("on", ["report", "namespace"])
def test_the_condition_says_who_why_and_until_when(
    api_server: ApiServer, namespace: str, operator: Operator, dsn: str, on: str
) -> None:
    target = [f"{namespace}/report"] if on == "report" else ["--namespace", namespace]
    api_server.apply(manifest("report", namespace, cron=["0 0 1 1 *"]))
    before = eventually(lambda: condition(obj := api_server.get(namespace, "report"), "Healthy") and obj)
    command(dsn, "hold", *target, "--reason", "the bank is down", "--by", "alice", "--until", "2040-01-01T00:00:00Z")

    def ready(reason: str) -> str:
        told = condition(api_server.get(namespace, "report"), "Ready")
        return told["message"] if told is not None and (told["status"], told["reason"]) == ("True", reason) else ""

    message = eventually(lambda: ready("Held"))
    assert "held by alice (login slotkeeper) until 2040-01-01T00:00:00Z: the bank is down" in message
    assert ("its namespace" in message) == (on == "namespace")
    held = api_server.get(namespace, "report")
    assert held is not None
    assert "nextScheduleTime" not in held["status"]
    assert held["metadata"]["generation"] == before["metadata"]["generation"]  # the object is as it was
    # GitOps applies what it has, and undoes nothing; what comes later is held, too, where the hold says so.
    api_server.apply(manifest("report", namespace, cron=["0 0 2 1 *"]), manifest("later", namespace))
    eventually(lambda: (api_server.get(namespace, "report") or {})["status"]["observedGeneration"] == 2)
    assert ready("Held") == message
    later = eventually(lambda: condition(obj := api_server.get(namespace, "later"), "Healthy") and obj)
    told = condition(later, "Ready")
    assert told is not None
    assert told["reason"] == ("Held" if on == "namespace" else "Accepted")
    command(dsn, "release", *target)
    ticker = Ticker(dsn)
    ticker.tick()
    ticker._session.close()
    eventually(lambda: ready("Accepted"))
    after = eventually(
        lambda: (obj := api_server.get(namespace, "report")) and "nextScheduleTime" in obj["status"] and obj
    )
    # From the release its timing decides slots again.
    assert after["status"]["effectiveTime"] > before["status"]["effectiveTime"]
