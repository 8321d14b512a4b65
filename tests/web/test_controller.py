"""The controller as a process: where it serves the dashboard, and that nothing of that stops it."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from processes import Processes, eventually, own_processes
from web_browser import Browser


@pytest.fixture
def processes(tmp_path: Path) -> Iterator[Processes]:
    with own_processes(tmp_path) as processes:
        yield processes


COMMAND = ("controller", "--no-kubernetes", "--listen", "off", "--log-format", "json", "--dashboard-listen")


def test_a_taken_port_is_waited_for(processes: Processes, dsn: str) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        process = processes.start(*COMMAND, address, "--dsn", dsn)
        (entry,) = eventually(lambda: process.log("dashboard_not_listening"), "it says so")
        assert entry["flag"] == "--dashboard-listen"
    eventually(lambda: process.log("dashboard"), "the port is free, and taken by the dashboard")
    assert Browser(address).get("/").status == 200
    assert process.stop() == 0
    assert "Traceback" not in process.text()


def test_an_address_that_others_reach_is_refused(processes: Processes, dsn: str) -> None:
    process = processes.start(*COMMAND, "0.0.0.0:8081", "--dsn", dsn)
    assert process.wait() == 2
    assert process.text().startswith("slotkeeper: --dashboard-listen: '0.0.0.0:8081' is not a loopback address")
    assert process.text().count("\n") == 1
