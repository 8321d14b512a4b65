"""Commands: exit statuses, environment, output, and how they are stopped. The programs are Python and sh."""

from __future__ import annotations

import json
import os
import signal
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from processes import eventually
from worker_place import Place

NO_BACKOFF = {"initialBackoffSeconds": 0, "maxBackoffSeconds": 0}
NEVER = {"initialBackoffSeconds": 86400, "maxBackoffSeconds": 86400}


def start(place: Place, *command: str, **spec: Any) -> int:
    """The run of a new schedule of this command."""
    name = place.schedules.add(command=list(command), **spec)
    place.schedules.fire(name)
    return int(eventually(lambda: place.schedules.jobs(name), "a run")[0].id)


def dead_or_done(place: Place, run: int) -> Any:
    return eventually(lambda: (job := place.job(run)).status in ("done", "dead") and job, "ended")


def test_exit_status_0_is_success(shared: Place) -> None:
    assert dead_or_done(shared, start(shared, "true")).status == "done"


@pytest.mark.parametrize("status", [65, 78])
def test_data_and_configuration_errors_are_not_repeated(shared: Place, status: int) -> None:
    dead = dead_or_done(shared, start(shared, "sh", "-c", f"echo why >&2; exit {status}"))
    assert (dead.status, dead.reason, dead.attempts) == ("dead", "NonRetryable", 1)
    assert dead.last_error == f"ExitStatus{status}: why\n"


def test_a_temporary_failure_is_not_charged(shared: Place) -> None:
    run = start(shared, "sh", "-c", "echo busy >&2; exit 75", retry=NEVER)
    waiting = shared.returned(run)
    assert (waiting.charged, waiting.last_error) == (0, "ExitStatus75: busy\n")


def test_any_other_status_is_retried(shared: Place) -> None:
    run = start(shared, "sh", "-c", "exit 1", retry={"maxAttempts": 2, **NO_BACKOFF})
    dead = dead_or_done(shared, run)
    assert (dead.status, dead.reason, dead.attempts) == ("dead", "RetriesExhausted", 2)
    assert [error[:2] for error in shared.errors(run)] == [(1, "ExitStatus1"), (2, "ExitStatus1")]


@pytest.mark.parametrize(("number", "name"), [(9, "SIGKILL"), (44, "Signal44")])
def test_death_by_a_signal_is_retried_and_says_which(shared: Place, number: int, name: str) -> None:
    run = start(shared, "sh", "-c", f"kill -{number} $$", retry={"maxAttempts": 1})
    assert dead_or_done(shared, run).last_error == f"{name}: "


def test_a_missing_program_goes_back_like_a_missing_handler(shared: Place) -> None:
    run = start(shared, "no-such-program-anywhere", retry=NEVER)
    waiting = shared.returned(run)
    assert (waiting.charged, waiting.started_at) == (0, None)
    assert waiting.last_error == "NoHandler: there is no program 'no-such-program-anywhere' in this worker's image"


def test_a_program_that_may_not_be_run_has_failed(shared: Place, tmp_path: Path) -> None:
    (tmp_path / "data").write_text("no program")
    run = start(shared, str(tmp_path / "data"), retry={"maxAttempts": 1})
    assert dead_or_done(shared, run).last_error.startswith("PermissionError: ")


def test_what_a_command_is_told_and_what_is_kept_from_it(place: Place) -> None:
    place.worker(
        name="secretive", PGPASSWORD="secret", DATABASE_URL=place.dsn, SLOTKEEPER_POOL="default", HARMLESS="kept"
    )
    output = place.processes.folder / "environment.json"
    run = start(
        place, sys.executable, "-c", f"import json, os; json.dump(dict(os.environ), open({str(output)!r}, 'w'))",
        cron=["0 * * * *"], timeZone="Europe/Berlin", payload={"a": "✓"},
    )  # fmt: skip
    job = dead_or_done(place, run)
    told = json.loads(output.read_text())
    ours = {name.removeprefix("SLOTKEEPER_"): value for name, value in told.items() if name.startswith("SLOTKEEPER_")}
    assert float(ours.pop("LATE_SECONDS")) > 0
    assert len(ours.pop("TOKEN")) == 36
    assert ours.pop("SLOT_LOCAL")[-6:] in ("+01:00", "+02:00")
    slot = f"{job.slot:%Y-%m-%dT%H:%M:%SZ}"
    before, after = (f"{job.slot.replace(hour=(job.slot.hour + step) % 24):T%H:%M:%SZ}" for step in (-1, 1))
    assert ours.pop("PREVIOUS_SLOT").endswith(before)
    assert ours.pop("NEXT_SLOT").endswith(after)
    schedule = f"{job.namespace}/{job.schedule}"
    assert ours == {
        "IDEMPOTENCY_KEY": f"{schedule}@{slot}", "SLOT": slot, "SCHEDULE": schedule, "ATTEMPT": "1", "CHARGED": "1",
        "MAX_ATTEMPTS": "6", "TRIGGER": job.trigger, "PAYLOAD": '{"a":"✓"}',
    }  # fmt: skip
    assert told["HARMLESS"] == "kept"
    assert not [name for name in told if name.startswith("PG")]
    assert not [name for name, value in told.items() if place.dsn in value]


def test_output_is_logged_with_slot_and_attempt_and_the_end_of_stderr_kept(place: Place) -> None:
    worker = place.worker()
    program = (
        "import sys; print('to the log'); sys.stdout.flush(); sys.stderr.write('x' * 200_000);"
        " sys.stderr.buffer.write(b'\\xff\\0 the end'); sys.exit(65)"
    )
    run = start(place, sys.executable, "-c", program)
    dead = dead_or_done(place, run)
    lines = [line for line in worker.log("output") if line["stream"] == "stdout"]
    assert [(line["line"], line["attempt"], line["schedule"]) for line in lines] == [
        ("to the log", 1, f"default/{dead.schedule}")
    ]
    assert lines[0]["slot"] == f"{dead.slot:%Y-%m-%dT%H:%M:%SZ}"
    message = dead.last_error.removeprefix("ExitStatus65: ")
    assert message.endswith("x\\xff\\x00 the end")
    assert 4000 < len(message) <= 4096 + 6  # two bytes are shown as escapes


def test_cancel_is_sigterm_to_the_whole_group(shared: Place, tmp_path: Path) -> None:
    told = tmp_path / "told"
    run = start(shared, "sh", "-c", f"trap 'echo term > {told}; exit 1' TERM; sleep 60 & echo on > {told}; wait")
    eventually(lambda: told.exists() and told.read_text() == "on\n", "the command runs")
    shared.value("select became from slotkeeper.cancel_v1(%s)", [run])
    shared.ended(run, "cancelled")
    assert told.read_text() == "term\n"


@pytest.fixture(scope="session", autouse=True)
def ignoring(shared: Place, tmp_path_factory: pytest.TempPathFactory) -> tuple[int, int, Any]:
    """A cancelled command that ignores SIGTERM: (run, process id, cancelled at). Begun early: it takes ten seconds."""
    told = tmp_path_factory.mktemp("ignoring") / "pid"
    run = start(shared, "sh", "-c", f"trap '' TERM; echo $$ > {told}; while :; do sleep 0.1; done")
    pid = int(eventually(lambda: told.exists() and told.read_text(), "the command runs"))
    asked = shared.value("select clock_timestamp()")
    shared.value("select became from slotkeeper.cancel_v1(%s)", [run])
    return run, pid, asked


def test_a_command_that_ignores_sigterm_is_killed(shared: Place, ignoring: tuple[int, int, Any]) -> None:
    run, pid, asked = ignoring
    cancelled = shared.ended(run, "cancelled")
    assert (cancelled.finished_at - asked).total_seconds() >= 10
    assert not Path(f"/proc/{pid}").exists()


def test_what_a_command_leaves_behind_does_not_hold_its_run(shared: Place, tmp_path: Path) -> None:
    """A child in the background keeps the pipes open; it ends with the command."""
    told = tmp_path / "pid"
    run = start(shared, "sh", "-c", f"sleep 600 & echo $! > {told}")
    job = dead_or_done(shared, run)
    assert job.status == "done"
    pid = int(told.read_text())
    eventually(lambda: not Path(f"/proc/{pid}").exists() or _state(pid) == "Z", "the child is gone")


def test_what_leaves_the_group_holds_its_run_only_for_a_moment(shared: Place, tmp_path: Path) -> None:
    told = tmp_path / "pid"
    run = start(
        shared, sys.executable, "-c",
        "import subprocess as s; p = s.Popen(['sleep', '60'], start_new_session=True);"
        f" open({str(told)!r}, 'w').write(str(p.pid))",
    )  # fmt: skip
    assert dead_or_done(shared, run).status == "done"
    os.kill(int(told.read_text()), signal.SIGKILL)


def _state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def test_prefetched_commands_wait_for_their_turn(place: Place, tmp_path: Path) -> None:
    """Quick ones are claimed ahead; never more than the concurrency run at a time."""
    place.worker(concurrency=2)
    log = tmp_path / "log"
    names = [
        place.schedules.add(command=["sh", "-c", f"echo 1 >> {log}; sleep 0.05; echo -1 >> {log}"]) for _ in range(14)
    ]
    place.schedules.fire(names[0])  # its time is measured: from now on claims ask for more than is free
    dead_or_done(place, eventually(lambda: place.schedules.jobs(names[0]), "a run")[0].id)
    for name in names[1:-1]:
        place.schedules.rewind(name, timedelta(hours=1))
    place.schedules.fire(names[-1])  # and with it all of them, in one transaction
    for name in names[1:]:
        dead_or_done(place, eventually(lambda name=name: place.schedules.jobs(name), "a run")[0].id)  # type: ignore[misc]
    steps = [int(step) for step in log.read_text().split()]
    assert len(steps) == 28
    assert max(sum(steps[:end]) for end in range(len(steps) + 1)) <= 2


def waiting_commands(place: Place, count: int, folder: Path) -> list[str]:
    """Schedules of commands that are claimed together: each writes to ``folder/begun`` and waits for ``folder/go``."""
    for _ in range(3):  # quick ones first, so that the worker takes more than it can begin
        dead_or_done(place, start(place, "true"))
    program = f"echo $0 >> {folder}/begun; until test -e {folder}/go; do sleep 0.05; done"
    names = [place.schedules.add(command=["sh", "-c", program, str(number)]) for number in range(count)]
    for name in names[:-1]:
        place.schedules.rewind(name, timedelta(hours=1))
    place.schedules.fire(names[-1])  # and with it all of them, in one transaction
    return names


def held(place: Place) -> int:
    return int(place.value("select count(*) from slotkeeper.run where state <> 0"))


def test_a_drain_gives_back_commands_that_have_not_begun(place: Place, tmp_path: Path) -> None:
    worker = place.worker(concurrency=2, drain_seconds=50)
    names = waiting_commands(place, 8, tmp_path)
    eventually(lambda: held(place) > 2, "more claimed than can begin")
    begun = tmp_path / "begun"
    eventually(lambda: begun.exists() and len(begun.read_text().split()) == 2, "two begun")
    worker.send(signal.SIGTERM)
    eventually(lambda: held(place) == 2, "the others are given back")
    (tmp_path / "go").touch()
    assert worker.wait() == 0, worker.text()
    assert len(begun.read_text().split()) == 2
    jobs = [place.schedules.jobs(name)[0] for name in names]
    assert sorted(job.status for job in jobs) == ["done"] * 2 + ["ready"] * 6
    assert {(job.charged, job.started_at) for job in jobs if job.status == "ready"} == {(0, None)}


def test_a_command_that_is_cancelled_before_its_turn_never_begins(place: Place, tmp_path: Path) -> None:
    worker = place.worker(concurrency=1)
    names = waiting_commands(place, 4, tmp_path)
    begun = tmp_path / "begun"
    eventually(lambda: begun.exists() and held(place) > 1, "more claimed than can begin")
    runs = {str(number): place.schedules.jobs(name)[0] for number, name in enumerate(names)}
    first = begun.read_text().strip()
    cancelled = next(number for number, job in runs.items() if job.status == "running" and number != first)
    place.value("select became from slotkeeper.cancel_v1(%s)", [int(runs[cancelled].id)])
    for _ in range(2):  # a beat tells it; after the next one it has been heard
        lease = place.value("select lease_until from slotkeeper.worker")
        eventually(lambda lease=lease: place.value("select lease_until from slotkeeper.worker") > lease, "a beat")  # type: ignore[misc]
    (tmp_path / "go").touch()
    place.ended(int(runs[cancelled].id), "cancelled")
    for number in runs.keys() - {cancelled}:
        place.ended(int(runs[number].id))
    assert sorted(begun.read_text().split()) == sorted(runs.keys() - {cancelled})
    assert worker.running
