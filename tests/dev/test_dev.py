"""`slotkeeper dev`: what the README promises of it, with its real Postgres, worker and files."""

from __future__ import annotations

import signal
from pathlib import Path
from urllib.parse import urlsplit

import scenario
from processes import OwnProcess, Processes, eventually
from web_browser import Browser

LATER = """
apiVersion: slotkeeper.dev/v1beta1
kind: JobSchedule
metadata: {name: later}
spec:
  cron: ["0 0 1 1 *"]
  task: hello
"""
SLEEPER = """
apiVersion: slotkeeper.dev/v1beta1
kind: JobSchedule
metadata: {name: sleeper}
spec:
  every: {periodSeconds: 10}
  command: [sleep, '600']
"""


def start(processes: Processes, *arguments: str | Path) -> OwnProcess:
    return processes.start("dev", *map(str, arguments), "--log-format", "json", "--drain-seconds", "5")


def dsn_of(process: OwnProcess) -> str:
    first = eventually(lambda: process.text().splitlines(), "a first line")[0]
    assert first.startswith("database: postgresql://")
    return first.removeprefix("database: ")


def says(process: OwnProcess, text: str) -> None:
    eventually(lambda: text in process.text(), f"it says {text!r}")


def done_of(process: OwnProcess, schedule: str) -> list[dict[str, object]]:
    return [
        line for line in process.log("attempt") if line.get("schedule") == schedule and line.get("outcome") == "done"
    ]


def descendants(pid: int) -> set[int]:
    """Of a process, from /proc."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").glob("[0-9]*/stat"):
        try:
            parents[int(entry.parent.name)] = int(entry.read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
    found = {pid}
    while more := {child for child, parent in parents.items() if parent in found} - found:
        found |= more
    return found - {pid}


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in ("Z", "X")
    except OSError:
        return False


def names(pids: set[int]) -> set[str]:
    found = set()
    for pid in pids:
        try:
            found.add(Path(f"/proc/{pid}/comm").read_text().strip())
        except OSError:
            continue
    return found


def test_the_story_of_the_quick_start(processes: Processes, folder: Path) -> None:
    process = start(processes, folder)
    dsn = dsn_of(process)
    says(process, "handlers: app.py")
    (folder / "later.yaml").write_text(LATER)
    says(process, "default/later: 0 0 1 1 *, next slot")
    eventually(lambda: done_of(process, "default/hello"), "a finished run")
    assert "hello world: dev/default/hello@" in process.text()

    # Another payload, and another period.
    manifest = folder / "schedules.yaml"
    manifest.write_text(
        manifest.read_text().replace("{name: world}", "{name: moon}").replace("periodSeconds: 15", "periodSeconds: 20")
    )
    says(process, "default/flaky: every 20s")
    # Other code: the worker is another one afterwards, and says something else.
    code = folder / "app.py"
    code.write_text(code.read_text().replace("hello {", "good evening {"))
    says(process, "code has changed")
    says(process, "good evening moon: dev/default/hello@")

    # An object that is refused changes nothing, and is named with its line.
    wrong = folder / "wrong.yaml"
    wrong.write_text(LATER.replace("later", "wrong").replace("0 0 1 1 *", "5-5 * * * *"))
    says(process, f"refused: {wrong}:6: spec.cron[0]")
    # While something is wrong, nothing is retired; then the file that is gone retires its schedule.
    (folder / "later.yaml").unlink()
    wrong.unlink()
    says(process, "default/later: retired, its file is gone")
    with scenario.connect(dsn) as connection:
        retired = scenario.rows(connection, "select name from slotkeeper.schedule where retired_at is not null")
        assert [row.name for row in retired] == ["later"]
        assert scenario.one(connection, "select count(*) from slotkeeper.slot_skip where reason <> 'Overlap'") == 0

    children = descendants(process.pid)
    assert {"postgres"} <= names(children)
    process.send(signal.SIGINT)
    assert process.wait() == 0, process.text()
    says(process, "draining")
    assert not [pid for pid in children if alive(pid)]
    assert "Traceback" not in process.text()


def test_a_process_that_is_killed_leaves_no_orphan(processes: Processes, folder: Path) -> None:
    (folder / "schedules.yaml").write_text(SLEEPER)
    process = start(processes, folder)
    eventually(lambda: "sleep" in names(descendants(process.pid)), "the command runs")
    children = descendants(process.pid)
    assert {"postgres", "sleep"} <= names(children)
    process.kill()
    eventually(lambda: not [pid for pid in children if alive(pid)], "all of them are gone", seconds=10)


def test_the_dashboard_shows_what_runs(processes: Processes, folder: Path) -> None:
    (folder / "later.yaml").write_text(LATER)
    process = start(processes, folder)
    says(process, "default/later: ")
    (line,) = [line for line in process.text().splitlines() if line.startswith("dashboard: ")]
    browser = Browser(urlsplit(line.removeprefix("dashboard: ")).netloc)
    assert "0 0 1 1 *" in browser.get("/").text
    assert browser.api("schedules/dev/default/later")["upcoming"][0]["slot"].endswith("-01-01T00:00:00Z")
    # A second one on this machine finds its port taken, and has another.
    other = processes.start("dev", str(folder), "--dashboard-listen", browser.address, "--drain-seconds", "0")
    says(other, "dashboard: http://127.0.0.1:")
    assert f"dashboard: http://{browser.address}/" not in other.text()
    assert other.stop() == 0
    assert process.stop() == 0


def test_what_is_wrong_from_the_start_is_named_and_ends_it(processes: Processes, tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.yaml"
    wrong.write_text(LATER.replace("task: hello", "tusk: hello"))
    process = start(processes, wrong)
    assert process.wait() == 1
    assert f"refused: {wrong}:7: spec.tusk" in process.text()
    assert "Traceback" not in process.text()


def test_code_with_a_fault_is_not_started_again_and_again_until_it_is_mended(
    processes: Processes, folder: Path
) -> None:
    code = folder / "app.py"
    good = code.read_text()
    code.write_text(good + "\nraise SystemExit('half an edit')\n")
    process = start(processes, folder)
    says(process, "the worker has ended (exit status 1); another starts in 1 s, or when code changes")
    says(process, "another starts in 2 s")
    assert process.text().count("half an edit") <= 2 + 1
    code.write_text(good)
    eventually(lambda: done_of(process, "default/hello"), "a finished run")
    process.send(signal.SIGINT)
    assert process.wait() == 0


def test_a_second_signal_does_not_wait_for_what_runs(processes: Processes, folder: Path) -> None:
    (folder / "schedules.yaml").write_text(SLEEPER)
    process = processes.start("dev", str(folder), "--drain-seconds", "600")
    eventually(lambda: "sleep" in names(descendants(process.pid)), "the command runs")
    process.send(signal.SIGINT)
    says(process, "draining")
    process.send(signal.SIGINT)
    assert process.wait() == 0
    assert not descendants(process.pid)


def test_a_kept_database_goes_on_and_forgets_what_has_no_file(
    processes: Processes, folder: Path, reachable: Path
) -> None:
    data = reachable / "data"
    (folder / "later.yaml").write_text(LATER)
    process = start(processes, folder, "--data", data)
    says(process, "default/later: ")
    assert process.stop() == 0
    (folder / "later.yaml").unlink()
    process = start(processes, folder, "--data", data)
    says(process, "default/later: retired, its file is gone")
    assert process.stop() == 0
